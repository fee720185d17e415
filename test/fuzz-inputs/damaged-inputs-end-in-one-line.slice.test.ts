/** A slice of the damaged inputs: `npm run campaign -- inputs` goes on for as long as it is told to. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { sized } from '../sized.ts';
import { fuzzInputs, kindsOfInput } from './campaign.ts';
import { runCommand, wrongWith } from './judge.ts';

const seed = testSeed(20_261);
// a command that hangs is found by this limit; one that is only slow, on a busy machine, stays far below it
const limitS = 100;
const ofEach = sized(1, 2);

it(`damaged inputs of each kind end in results or in one line (TIERKV_SEED=${seed})`, async () => {
  const findings: unknown[] = [];
  const report = await fuzzInputs({
    seed,
    first: 0,
    limitS,
    goOn: (done) => done < ofEach * kindsOfInput,
    onFinding: (finding) => findings.push(finding),
  });
  expect(findings).toEqual([]);
  expect(report.inputs).toBe(ofEach * kindsOfInput);
}, 600_000);

it('the judge finds each wrong end of a command', async () => {
  const good = {
    status: 2,
    stdout: '',
    stderr: 'tierkv: x is y. Mend it. [TKV_INPUT]\n',
    peakMib: 90,
    seconds: 1,
  };
  expect(wrongWith(good)).toBeUndefined();
  expect(wrongWith({ ...good, stderr: `${good.stderr}more\n` })).toMatch(/2 lines/);
  expect(wrongWith({ ...good, status: 1 })).toMatch(/exit code 1/);
  const faults = { ...good, status: 1, stderr: '', stdout: 'fault slot 3: torn\nfaults 1\n' };
  expect(wrongWith(faults)).toBeUndefined();
  expect(wrongWith({ ...faults, stdout: 'faults 0\n' })).toMatch(/exit code 1/);
  expect(wrongWith({ ...good, status: null })).toMatch(/killed/);
  expect(wrongWith({ ...good, peakMib: 3000 })).toMatch(/3000 MiB/);
  expect(wrongWith({ ...good, status: 0, stdout: 'MAPE NaN%' })).toMatch(/NaN/);
  const folder = mkdtempSync(join(tmpdir(), 'tierkv-judge-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const ended = await runCommand(['--version'], folder, limitS);
  expect(ended.status).toBe(0);
  expect(ended.peakMib).toBeGreaterThan(10);
});
