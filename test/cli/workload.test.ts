import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { simulateCommand } from '../../src/cli/simulate/command.ts';
import { workloadCommand } from '../../src/cli/workload/command.ts';
import { resultOf } from '../resultSchema.ts';
import { printedBy } from './printed.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tierkv-workload-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Runs `tierkv workload …` in this process and returns what it wrote. */
async function run(...args: string[]): Promise<{ out: string; err: string }> {
  const written = { out: '', err: '' };
  const catchInto = (key: 'out' | 'err') => (text: string | Uint8Array) => {
    written[key] += String(text);
    return true;
  };
  const spies = [
    vi.spyOn(process.stdout, 'write').mockImplementation(catchInto('out')),
    vi.spyOn(process.stderr, 'write').mockImplementation(catchInto('err')),
  ];
  try {
    const command = workloadCommand();
    const quiet = (one: Command): void => {
      one.exitOverride().configureOutput({ writeErr: () => {} });
      one.commands.forEach(quiet);
    };
    quiet(command);
    await command.parseAsync(args, { from: 'user' });
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  return written;
}

const file = (name: string): string => join(folder, name);
const spec = new URL('../sim/workload/fixtures/specs/mixed-slo.yaml', import.meta.url).pathname;

describe('tierkv workload', () => {
  it('generates a pair that describes like its spec', async () => {
    await run('generate', spec, '-o', file('trace'));
    const csv = readFileSync(file('trace.csv'), 'utf8');
    expect(csv.trimEnd().split('\n')).toHaveLength(601);
    expect(readFileSync(file('trace.yaml'), 'utf8')).toContain('workload_seed: 7');
    const facts = async (path: string): Promise<string> =>
      (await run('describe', path)).out.split('client')[0];
    expect(await facts(file('trace.csv'))).toBe(await facts(spec));
    expect((await run('generate', spec)).out).toBe(csv);
  });

  it('describes as table, JSON and picture', async () => {
    const { out } = await run('describe', spec, '--json', file('d.json'), '--plot', file('d.svg'));
    expect(out).toMatch(/tenant-batch .* 185 /);
    const json = resultOf<{ requests: number; tenants: unknown[] }>(
      'workload describe',
      readFileSync(file('d.json'), 'utf8'),
    );
    expect(json.requests).toBe(600);
    expect(json.tenants).toHaveLength(3);
    expect(readFileSync(file('d.svg'), 'utf8')).toMatch(/^<svg[\s\S]*requests a second[\s\S]*tenant-rt/);
  });

  it('takes presets with their options, and seeds change what comes', async () => {
    const rows = async (...more: string[]): Promise<string> =>
      (await run('generate', '--workload', 'chatbot', '--num-requests', '5', ...more)).out;
    const plain = await rows();
    expect(await rows('--seed', '42')).toBe(plain);
    expect(await rows('--seed', '43')).not.toBe(plain);
    expect((await rows('--prefix-tokens', '32', '--timeout', '-1')).split('\n')[1]).toMatch(
      /shared,32,.*,0,0,1000000,/,
    );
  });

  it('follows a load profile', async () => {
    const { out } = await run(
      'generate',
      '--workload',
      'chatbot',
      '--num-requests',
      '0',
      '--profile',
      'step:from=1,to=10,at=50,duration=100',
    );
    const arrivals = out
      .trimEnd()
      .split('\n')
      .slice(1)
      .map((line) => Number(line.split(',')[19]) / 1e6);
    expect(arrivals.filter((s) => s < 50)).toHaveLength(49);
    expect(arrivals.filter((s) => s >= 50)).toHaveLength(499);
  });

  it('converts presets to specs and specs to themselves', async () => {
    const { out } = await run('convert', 'summarization', '--from', 'preset', '--to', 'spec', '--rate', '3');
    writeFileSync(file('s.yaml'), out);
    expect((await run('convert', file('s.yaml'), '--to', 'spec')).out).toBe(out);
    const generated = await run('generate', file('s.yaml'), '--num-requests', '20');
    expect(generated.out).toBe(
      (await run('generate', '--workload', 'summarization', '--rate', '3', '--num-requests', '20')).out,
    );
  });

  it('converts traces to TraceV2', async () => {
    writeFileSync(
      file('m.jsonl'),
      '{"timestamp": 7, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n',
    );
    const { out } = await run('convert', file('m.jsonl'), '--to', 'tracev2');
    expect(out.split('\n')[1]).toMatch(/^0,mooncake,.*,600,5,.*,7000,7000,/);
  });

  it.each([
    [
      '',
      /^closed loop: the rate \(5 a second\) counts sessions, each of up to 8 rounds: (\d+) sessions begin, up to ([\d,]+) requests; num_requests \(600\) counts planned rounds/m,
    ],
    [
      'closed_loop: false',
      /^open loop: the rate \(5 a second\) counts sessions, each of up to 8 rounds; num_requests \(600\) counts all rounds/m,
    ],
  ])('says what a rate counts where clients hold conversations: %s', async (more, says) => {
    writeFileSync(
      file('rounds.yaml'),
      `version: "2"
aggregate_rate: 5
num_requests: 600
clients:
  - id: chat
    rate_fraction: 1
    arrival: {process: constant}
    input_distribution: {type: constant, params: {value: 30}}
    output_distribution: {type: constant, params: {value: 5}}
    reasoning: {multi_turn: {max_rounds: 8, think_time_us: 1000}}
    ${more}
`,
    );
    const { out } = await run('describe', file('rounds.yaml'), '--json', file('r.json'));
    const [, begun, most] = says.exec(out)!;
    const { requests, sessions, requestsPerS } = JSON.parse(readFileSync(file('r.json'), 'utf8'))
      .result as Record<string, number>;
    if (more !== '') {
      expect(requests).toBe(600);
      expect(requestsPerS).toBeGreaterThan(30);
      return;
    }
    expect(sessions).toBe(Number(begun));
    expect(requestsPerS).toBeCloseTo(5, 0);
    const printed = await printedBy(simulateCommand(), file('rounds.yaml'), '--model', 'qwen3-14b');
    const served = Number(/ of ([\d,]+) requests completed/.exec(printed)![1].replaceAll(',', ''));
    expect(served).toBe(8 * sessions);
    expect(served).toBe(Number(most.replace(',', '')));
    expect((await run('generate', file('rounds.yaml'))).err).toMatch(says);
  });

  it('says that a closed loop goes on in the simulation', async () => {
    const { out, err } = await run('generate', '--concurrency', '4', '--num-requests', '10');
    expect(out.trimEnd().split('\n')).toHaveLength(5);
    expect(err).toMatch(/first requests of 4 sessions; their up to 6 follow-ups/);
  });

  it.each([
    [['describe', 'nowhere.yaml'], /nowhere\.yaml does not exist/],
    [['describe', '--workload', 'chatbo'], /Did you mean "chatbot"\?/],
    [['generate', '--rate', '-1'], /--rate is -1/],
    [['generate', '--rate', 'x'], /--rate is "x", not a number/],
    [['generate', '--rate', '1', '--concurrency', '3'], /--concurrency excludes --rate/],
    [['generate', '--num-requests', '0'], /no end/],
    [['generate', '--timeout', '0'], /--timeout is 0/],
    [['generate', '--seed', '1.5'], /--seed is "1\.5"/],
    [['generate', '--prompt-tokens', '9000'], /--prompt-tokens is 9000, outside \[2, 7000\]/],
    [['generate', '--profile', 'ramp:form=1'], /has the key "form"\. Did you mean "from"\?/],
    [['describe', '--from', 'mooncacke', 'x'], /--from is "mooncacke"\. Did you mean "mooncake"\?/],
    [['convert', 'x', '--to', 'csv'], /--to is "csv"/],
  ])('%j is one line and a remedy', async (args, message) => {
    const error = await run(...args).then(
      () => undefined,
      (reason: Error) => reason,
    );
    expect(error?.message).toMatch(message);
    expect(error?.message).not.toContain('\n');
  });

  it('says that a file is empty, and not that its format is unknown', async () => {
    for (const [name, text] of [
      ['empty.jsonl', ''],
      ['blank.csv', '\n \n'],
    ] as const) {
      writeFileSync(file(name), text);
      await expect(run('describe', file(name))).rejects.toThrow(
        `${file(name)} is empty: it has no request. Name another file.`,
      );
    }
  });

  it('says that no spec is behind a recorded trace', async () => {
    writeFileSync(
      file('m.jsonl'),
      '{"timestamp": 7, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n',
    );
    await expect(run('convert', file('m.jsonl'), '--to', 'spec')).rejects.toThrow(
      /^--to is spec, and .*m\.jsonl is a recorded trace \(mooncake\), which was not made from a spec\. Use --to tracev2/,
    );
  });

  it.each([
    [['--block-tokens', '0'], /--block-tokens is 0\. Set it to an integer from 1 to 1048576/],
    [['--session-gap', '1e300'], /--session-gap is 1e\+300/],
    [['--rate', '1e308'], /--rate is 1e\+308/],
    [['--timeout', '1e300'], /--timeout is 1e\+300/],
    [['--prompt-tokens-max', '1e15'], /--prompt-tokens-max is 1000000000000000, not an integer from 2 to/],
    [['--output-tokens-stdev', '9000'], /--output-tokens-stdev is 9000.*widen --output-tokens-min and/],
    [['--profile', 'ramp:to=1e308,from=1,duration=1'], /--profile has to=1e308/],
    [['--profile', 'step:toString=1'], /--profile has the key "toString"/],
    [['--workload', 'constructor'], /--workload is "constructor", which is not a preset/],
  ])('refuses %j by the name of the option', async (args, message) => {
    await expect(run('generate', ...args)).rejects.toThrow(message);
  });

  it('names file and line of a broken trace', async () => {
    writeFileSync(
      file('bad.jsonl'),
      '{"timestamp": 7, "input_length": 1, "output_length": 5, "hash_ids": [0]}\n\n{"hash_ids":\n',
    );
    await expect(run('describe', file('bad.jsonl'))).rejects.toThrow(/bad\.jsonl:3: is not valid JSON/);
    writeFileSync(file('odd.txt'), 'hello\n');
    await expect(run('describe', file('odd.txt'))).rejects.toThrow(
      /odd\.txt: no known workload format\. Name it with --from/,
    );
  });
});
