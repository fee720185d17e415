import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { calibrateCommand } from '../../../src/cli/calibrate/command.ts';
import { endingOf } from '../../../src/cli/process.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { printedBy } from '../printed.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-pair-link-'));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const calibrate = (...args: string[]): Promise<string> => printedBy(calibrateCommand(), ...args);

/** What a decode server says at `/handoffs`, over a link of 2 ms and 0.5 GB/s. */
const said = JSON.stringify({
  role: 'decode',
  recent: [1, 2, 4, 8].map((blocks) => {
    const bytes = blocks * 1_000_000;
    return { outcome: 'taken', reason: '', blocks, taken: blocks, bytes, ms: 2 + bytes / 5e5, flowMs: 1 };
  }),
});

describe('calibrate --handoffs', () => {
  it('writes the section of a deployment file that the simulator runs', async () => {
    const out = join(folder, 'handoff.yaml');
    const text = await calibrate('--handoffs', file('said.json', said), '--out', out);
    expect(text).toContain('4 hand-offs: 2000 µs and 0.5 GB/s, median error 0 %');
    expect(text).toContain(
      '--pd-transfer-base-latency 2 --pd-transfer-bandwidth 0.5 --pd-transfer-granularity stream --pd-transfer-pipelined ' +
        '--pd-transfer-missing',
    );
    const deployment = `version: 1
models:
  - {name: llama-3.1-8b-instruct, hardware: H100, latency_model: calibrated}
pools:
  - {name: prefill, role: prefill, replicas: 1}
  - {name: decode, role: decode, replicas: 1}
control: {decider: {policy: always}}
workload: {preset: chatbot, rate: 2, num_requests: 20}
`;
    const endToEndOf = (section: string, name: string): number =>
      simulate({ file: file(name, deployment + section) }).metrics.e2e_mean_ms;
    const measured = endToEndOf(readFileSync(out, 'utf8'), 'measured.yaml');
    const swift = endToEndOf('handoff: {base_latency_us: 1, bandwidth_gb_per_s: 1000}\n', 'swift.yaml');
    expect(measured).toBeGreaterThan(swift + 2);
  });

  it('asks a decode server itself', async () => {
    const server = createServer((_, answer) => answer.end(said));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    try {
      expect(await calibrate('--handoffs', `http://127.0.0.1:${port}/handoffs`)).toContain('0.5 GB/s');
    } finally {
      server.close();
    }
    await expect(calibrate('--handoffs', `http://127.0.0.1:${port}/handoffs`)).rejects.toThrow(
      'does not answer',
    );
  });

  it.each([
    ['{', 'must be JSON'],
    ['null', 'must have a list under recent'],
    ['{"recent": [{"outcome": "taken"}]}', 'recent[0].taken must be a number from 0 on'],
    ['{"recent": [null]}', 'recent[0].outcome must be a text'],
    ['{"recent": []}', 'there are 0 whole hand-offs of 0 sizes, and a fit needs 4 of 2'],
  ])('says what is wrong with %s', async (text, problem) => {
    const error = await calibrate('--handoffs', file('wrong.json', text)).catch((one: unknown) => one);
    expect(endingOf(error, 'tierkv')).toMatchObject({ exitCode: 2 });
    expect(String(error)).toContain(problem);
  });
});
