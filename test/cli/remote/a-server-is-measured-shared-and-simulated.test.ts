import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { benchCommand } from '../../../src/cli/bench/command.ts';
import { calibrateCommand } from '../../../src/cli/calibrate/command.ts';
import { replayCommand } from '../../../src/cli/replay/command.ts';
import { parseReplayOptions } from '../../../src/cli/replay/parseOptions.ts';
import { type RawReplayOptions, replayDefaults } from '../../../src/cli/replay/words.ts';
import { simulateCommand } from '../../../src/cli/simulate/command.ts';
import { readSharedTier } from '../../../src/sim/build/engineSettings.ts';
import { SharedServer } from '../../../src/sim/links/sharedServer.ts';
import type { ReplayReport } from '../../../src/studies/replay/report.ts';
import { runReplay } from '../../../src/studies/replay/run.ts';
import {
  hasRedis,
  type RedisServer,
  sayRedisIsAbsent,
  startRedis,
} from '../../backends/remote/redisServer.ts';
import { portOfOurOwn } from '../../ports.ts';
import { printedBy } from '../printed.ts';

const trace = join('data', 'mooncake-conversation-excerpt.jsonl.gz');

if (!hasRedis) sayRedisIsAbsent('commands with a shared server');
describe.skipIf(!hasRedis)('with a server', () => {
  let server: RedisServer;
  let dir: string;
  beforeAll(async () => {
    server = await startRedis('--maxmemory', '300mb', '--maxmemory-policy', 'allkeys-lru');
    dir = fs.mkdtempSync(join(tmpdir(), 'tierkv-shared-'));
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    fs.rmSync(dir, { recursive: true });
  });

  it('calibrate writes what simulate takes for the tier that instances share', async () => {
    const file = join(dir, 'shared.json');
    const said = await printedBy(calibrateCommand(), '--remote', server.url, '--out', file, '--quick');
    expect(said).toContain('4 MiB');
    const figures = JSON.parse(fs.readFileSync(file, 'utf8')) as Record<string, number>;
    expect(figures).toMatchObject({ schema: 'tierkv.shared/1', capacity_bytes: 300 * 2 ** 20 });
    for (const key of ['read_gb_per_s', 'write_gb_per_s', 'lookup_us']) {
      expect(figures[key], key).toBeGreaterThan(0);
    }
    const asked = '--model qwen3-14b --num-instances 2 --workload chatbot --rate 20 --num-requests 50';
    const simulated = await printedBy(simulateCommand(), ...asked.split(' '), '--shared-tier', file);
    expect(simulated).toMatch(/shared: .* of 300 MiB, \d+ blocks found in \d+ lookups/);
  });

  it('a replay finds what an earlier one left there, and every block is right', async () => {
    const words = '--requests 12 --hbm-blocks 120 --ddr-blocks 0 --nvme-blocks 0 --block-bytes 4KiB';
    const runs = [];
    for (const name of ['one.json', 'two.json']) {
      const json = join(dir, name);
      const remote = ['--remote', server.url, '--remote-blocks', '2000', '--json', json];
      await printedBy(replayCommand(), trace, ...words.split(' '), ...remote);
      runs.push(JSON.parse(fs.readFileSync(json, 'utf8')).result);
    }
    const [one, two] = runs;
    expect(one.tiers.remote.found).toBe(0);
    expect(two.tiers.remote.found).toBeGreaterThan(0);
    expect(two.hits.remote).toBeGreaterThan(one.hits.remote);
    expect([one.verifyFailures, two.verifyFailures]).toEqual([0, 0]);
  });

  it('a replay on the model of a server finds and decides what one on the server does', async () => {
    const model = join(dir, 'model.json');
    const figures = { capacity_bytes: 300 * 2 ** 20, read_gb_per_s: 1, write_gb_per_s: 1 };
    fs.writeFileSync(model, JSON.stringify(figures));
    const args = [
      '--num-requests',
      '25',
      '--hbm',
      '120',
      '--ddr',
      '60',
      '--nvme',
      '0',
      '--block-bytes',
      '4KiB',
    ];
    const own = `${server.url}/3`; // others of this file lie in database 0
    const logs: string[] = [];
    const replays = async (more: readonly string[], name: string): Promise<ReplayReport> => {
      const [json, log] = [join(dir, `${name}.json`), join(dir, `${name}.log`)];
      await printedBy(replayCommand(), trace, ...args, ...more, '--json', json, '--log', log);
      logs.push(log);
      return JSON.parse(fs.readFileSync(json, 'utf8')).result;
    };
    const real = [await replays(['--remote', own], 'real1'), await replays(['--remote', own], 'real2')];
    const modeled = await replays(['--driver', 'modeled', '--shared-tier', model], 'model1');
    // a second one finds what the first left, on the same server
    const listener = { progress: () => {}, notice: () => {}, signal: new AbortController().signal };
    const words: RawReplayOptions = {
      ...{ ...replayDefaults, skipBad: false, driver: 'modeled', requests: '25', sharedTier: model },
      ...{ hbm: '120', ddr: '60', nvme: '0', blockBytes: '4KiB' },
    };
    const options = parseReplayOptions(trace, words, () => dir);
    const both = [await runReplay(options, listener), await runReplay(options, listener)];
    const of = ({ hits, hitDigest, decisionDigest, demotions }: ReplayReport) => {
      return { hits, hitDigest, decisionDigest, demotions };
    };
    expect(of(modeled)).toEqual(of(real[0]));
    expect(both.map(of)).toEqual(real.map(of));
    expect(real[1].hits.remote, 'what the first one left').toBeGreaterThan(real[0].hits.remote ?? 0);
    // the inputs of the real run, decided again, come out as the same log
    const again = join(dir, 'again.log');
    await printedBy(replayCommand(), '--inputs', logs[1], '--driver', 'modeled', '--log', again);
    expect(fs.readFileSync(again).equals(fs.readFileSync(logs[1]))).toBe(true);
    // the control: a server that forgets is another server
    const tiny = new SharedServer({ ...readSharedTier(model), capacityBytes: 40 * 4096 });
    const forgetful = { ...options, shared: tiny };
    await runReplay(forgetful, listener);
    expect(of(await runReplay(forgetful, listener))).not.toEqual(of(real[1]));
    expect(tiny.counts.evictions).toBeGreaterThan(0);
  }, 600_000);

  it('a server that is not there, and options that would do nothing, are one line', async () => {
    const absent = `redis://127.0.0.1:${await portOfOurOwn()}`;
    const out = join(dir, 'none.json');
    await expect(
      printedBy(calibrateCommand(), '--remote', absent, '--out', out, '--quick'),
    ).rejects.toMatchObject({ code: 'TKV_IO', field: '--remote' });
    await expect(
      printedBy(calibrateCommand(), '--remote', absent, '--out', out, '--dir', dir),
    ).rejects.toThrow('--dir excludes --remote');
    await expect(printedBy(benchCommand(), 'remote')).rejects.toThrow('--remote is missing');
    await expect(printedBy(benchCommand(), 'links', '--remote', absent)).rejects.toThrow('bench links');
    const replay = (...more: string[]): Promise<string> => printedBy(replayCommand(), trace, ...more);
    await expect(replay('--remote-blocks', '5')).rejects.toThrow('without --remote');
    await expect(replay('--remote', absent, '--driver', 'modeled')).rejects.toThrow('--driver real');
    await expect(replay('--shared-tier', 'x.json')).rejects.toThrow('--shared-tier is a model of a server');
    await expect(replay('--remote', 'redi://x')).rejects.toThrow('Did you mean redis');
  });
});
