/**
 * Chromium out of its package, once on this machine. The package itself unpacks it into one place and takes a file that is
 * there for a whole one, so of two tests that begin together on a fresh machine one would start half a program: here it is
 * unpacked beside, by a process of its own, and shows at its place when it is whole.
 */

import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

const program = `
const { default: chromium, inflate } = await import(process.argv[1]);
await Promise.all([chromium.executablePath(), inflate(process.argv[2])]);
`;

/** @returns the program, and the folder of the libraries that a system may lack. @throws where the package has no program for this machine */
export async function unpackedChromium(): Promise<{ readonly path: string; readonly libraries: string }> {
  const entry = createRequire(import.meta.url).resolve('@sparticuz/chromium');
  const root = join(dirname(entry), '..');
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
  const folder = join(tmpdir(), `tierkv-chromium-${version}`);
  if (!existsSync(folder)) {
    const fresh = mkdtempSync(join(tmpdir(), 'tierkv-chromium-fresh-'));
    const args = ['--input-type=module', '-e', program, entry, join(root, 'bin', 'al2023.tar.br')];
    try {
      await promisify(execFile)(process.execPath, args, { env: { ...process.env, TMPDIR: fresh } });
      renameSync(fresh, folder);
    } catch (error) {
      rmSync(fresh, { recursive: true, force: true });
      if (!existsSync(folder)) throw error; // else another process was first
    }
  }
  return { path: join(folder, 'chromium'), libraries: join(folder, 'al2023', 'lib') };
}
