import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { HbmStore, readUploadProfile } from '../../../src/backends/webgpu/index.ts';
import { benchLinks } from '../../../src/cli/bench/links/benchLinks.ts';
import { type LinkRow, plotOf, renderRows, runLinkBench } from '../../../src/cli/bench/links/index.ts';
import { type Checks, limitOf } from '../../../src/cli/bench/links/limit.ts';
import { profileOf } from '../../../src/cli/bench/links/profile.ts';
import { measureRounds, median, quantile } from '../../../src/cli/bench/links/rounds.ts';
import { renderSvg } from '../../../src/cli/chart.ts';
import { openTiers } from '../../../src/cli/replay/modeledTiers.ts';
import { parseReplayOptions, replayDefaults } from '../../../src/cli/replay/parseOptions.ts';
import { KVManager, poolShape, Tier } from '../../../src/runtime/index.ts';
import { LinkModel } from '../../../src/sim/driver/index.ts';
import { parseLinkCalibration } from '../../../src/sim/latency/index.ts';
import { softwareDevice } from '../../backends/webgpu/softwareDevice.ts';

const device = softwareDevice();
const oneWay = ['hbmToDdr', 'ddrToHbm', 'ddrToNvme', 'nvmeToDdr', 'hbmToNvme', 'nvmeToHbm'];
const pairs = ['hbmToDdr+ddrToHbm', 'ddrToNvme+nvmeToDdr', 'hbmToNvme+nvmeToHbm'];
const KIB = 1024;

let dir = '';
let rows: LinkRow[] = [];

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'tierkv-bench-test-'));
  rows = await benchLinks(device.live, {
    links: 'all',
    unitBytes: [16 * KIB, 64 * KIB],
    totalBytes: 256 * KIB,
    unitsMax: Number.POSITIVE_INFINITY,
    trials: 1,
    rounds: 2,
    roundsMax: 3,
    restMs: 0,
    sampleMs: 0,
    secondsMax: Number.POSITIVE_INFINITY,
    dir,
    signal: new AbortController().signal,
    say: () => {},
  });
}, 60_000);

afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe('the link bench', () => {
  it('has a row of each link and pair, at each size, contiguous and scattered', () => {
    for (const bytes of [16 * KIB, 64 * KIB]) {
      for (const arrangement of ['contiguous', 'scattered']) {
        const here = rows.filter((row) => row.bytes === bytes && row.pattern.startsWith(arrangement));
        expect([...new Set(here.map((row) => row.link))].toSorted()).toEqual(
          [...oneWay, ...pairs].toSorted(),
        );
        for (const row of here) expect(row.pattern.endsWith(', both ways')).toBe(row.link.includes('+'));
      }
    }
  });

  it('shows what arrives in HBM with and without verification', () => {
    for (const link of ['ddrToHbm', 'nvmeToHbm', 'hbmToDdr+ddrToHbm']) {
      const verified = rows.filter((row) => row.link === link).map((row) => row.verify.includes('hbm'));
      expect(new Set(verified)).toEqual(new Set([true, false]));
    }
  });

  it('shows what is read from files with and without verification', () => {
    const ways = rows.filter((row) => row.link === 'nvmeToDdr').map((row) => row.verify);
    expect(new Set(ways)).toEqual(new Set(['host', 'none']));
  });

  it('measures every figure, and the ratio is what it is called', () => {
    for (const row of rows) {
      for (const name of [
        'gbps',
        'singleGbps',
        'naiveGbps',
        'limitGbps',
        'p50Us',
        'p99Us',
        'cpuCores',
      ] as const) {
        expect(row[name], `${name} of ${row.link}`).toBeGreaterThan(0);
        expect(row[name]).toBeLessThan(Number.POSITIVE_INFINITY);
      }
      if (pairs.includes(row.link)) expect(row.togetherGbps).toBeUndefined();
      else expect(row.togetherGbps, row.link).toBeGreaterThan(0);
      expect(row.ratio).toBe(row.gbps / row.limitGbps);
      expect(row.p99Us).toBeGreaterThanOrEqual(row.p50Us);
      expect([2, 3]).toContain(row.rounds);
    }
  });

  it('calls software what a software device has a part in, and nothing else', () => {
    for (const row of rows) {
      expect(row.software, row.link).toBe(row.link.toLowerCase().includes('hbm'));
      expect(row.adapter).toBe(device.live.adapter.name);
    }
  });

  it('names as the limit a stage that the link has', () => {
    for (const { link, pattern, limitStage } of rows) {
      const where = pattern.startsWith('scattered') ? 'scattered ' : '';
      const stages = [
        ...(link.includes('nvmeToDdr') ? [`${where}disk read`, 'digest'] : []),
        ...(link.includes('nvmeToHbm') ? [`${where}disk read to staging`, 'digest'] : []),
        ...(link.includes('ToNvme') ? [`${where}disk write`] : []),
        ...(/ToHbm/.test(link)
          ? [
              'device copy up',
              'device copy up and back',
              'memcpy up',
              'memcpy up and digest',
              'digest and memcpy up',
            ]
          : []),
        ...(link.includes('hbmTo') ? ['device copy down', 'memcpy down'] : []),
      ];
      for (const stage of limitStage.split(' + ')) expect(stages, link).toContain(stage);
    }
  });

  it('takes the slowest stage for the limit, which is all that one part of the machine does', () => {
    const speed = (gbps: number) => ({ gbps, cores: 1 });
    const speeds = new Map([
      ['device copy up', speed(6)],
      ['device copy up and back', speed(3)],
      ['device copy down', speed(8)],
      ['memcpy up: whole', speed(5)],
      ['memcpy up: pieces', speed(9)],
      ['memcpy up and digest: pieces', speed(4)],
      ['digest and memcpy up: whole', speed(1.9)],
      ['memcpy down', speed(7)],
      ['digest', speed(8)],
      ['disk read: 1', speed(1)],
      ['disk read: 8', speed(2)],
      ['disk read: 16 in pieces', speed(1.5)],
      ['disk write: 4', speed(1)],
      ['scattered disk read: 16', speed(1.25)],
    ]);
    const here: Checks = { arrivals: 'readback', readsAside: false };
    const plain = { work: [['memcpy up', 'device copy up']] } as const;
    expect(limitOf(plain, 'contiguous', speeds, here)).toEqual({
      by: 'device copy up',
      gbps: 6,
      depth: 1,
    });
    const down = { work: [['device copy down', 'memcpy down']] } as const;
    expect(limitOf(down, 'contiguous', speeds, here)).toMatchObject({ by: 'memcpy down', gbps: 7 });
    const up = { work: [['memcpy up', 'device copy up', 'arrival check']] } as const;
    expect(limitOf(up, 'scattered', speeds, here)).toMatchObject({
      by: 'device copy up and back',
      gbps: 3,
    });
    expect(limitOf(up, 'scattered', speeds, { ...here, arrivals: 'kernel' })).toMatchObject({
      by: 'device copy up',
      gbps: 6,
    });
    const slowHost = new Map([...speeds, ['memcpy up and digest: pieces', speed(2)]]);
    expect(limitOf(up, 'contiguous', slowHost, here)).toMatchObject({
      by: 'memcpy up and digest',
      gbps: 2,
    });
    const fromDisk = { work: [['disk read', 'digest']] } as const;
    expect(limitOf(fromDisk, 'contiguous', speeds, here)).toEqual({
      by: 'disk read',
      gbps: 2,
      depth: 8,
    });
    expect(limitOf(fromDisk, 'scattered', speeds, here)).toEqual({
      by: 'scattered disk read',
      gbps: 1.25,
      depth: 16,
    });
    const intoHbm = { work: [['disk read', 'digest', 'memcpy up', 'device copy up']] } as const;
    expect(limitOf(intoHbm, 'contiguous', speeds, here)).toMatchObject({
      by: 'digest and memcpy up',
      gbps: expect.closeTo(1.9, 9),
    });
    const aside = { ...here, readsAside: true };
    expect(limitOf(intoHbm, 'contiguous', speeds, aside)).toMatchObject({ by: 'disk read', gbps: 2 });
    const slowDigest = new Map([...speeds, ['digest', speed(1.5)]]);
    expect(limitOf(intoHbm, 'contiguous', slowDigest, aside)).toMatchObject({ by: 'digest', gbps: 1.5 });
    const both = { work: [['disk write'], ['disk read', 'digest']] } as const;
    const limit = limitOf(both, 'contiguous', speeds, here);
    expect(limit.by).toBe('disk write + disk read');
    expect(limit.gbps).toBeCloseTo(2 / (1 + 1 / 2), 10);
  });

  it('draws and tabulates its rows', async () => {
    expect(renderRows(rows).split('\n').length).toBeGreaterThan(rows.length);
    expect(await renderSvg(plotOf(rows))).toContain('ddrToHbm, scattered');
  });

  it('with --quick ends with the same rows at its own sizes', { timeout: 90_000 }, async () => {
    const request = {
      links: 'transfers',
      quick: true,
      dir,
      adapter: 'software',
      against: undefined,
    } as const;
    const quick = await runLinkBench({ ...request, say: () => {} });
    expect(new Set(quick.map((row) => row.link))).toEqual(
      new Set(['hbmToDdr', 'ddrToHbm', 'hbmToDdr+ddrToHbm']),
    );
    expect(Math.max(...quick.map((row) => row.bytes))).toBeGreaterThanOrEqual(2 * KIB * KIB);
  });

  it('refuses to compare with what it does not know or find', async () => {
    const request = { links: 'disk', quick: true, dir, adapter: 'software', say: () => {} } as const;
    await expect(runLinkBench({ ...request, against: 'dd' })).rejects.toThrow(
      /--against is "dd".*Set it to fio/,
    );
  });
});

describe('rounds', () => {
  const contestant = (name: string, log: string[]) => ({
    name,
    bytes: 1,
    usesDisk: name === name.toUpperCase(),
    cold: name === 'Y',
    run: async () => void log.push(name),
  });
  const calm = {
    roundsMax: 0,
    restMs: 0,
    sampleMs: 0,
    untilMs: Number.POSITIVE_INFINITY,
    between: async () => {},
    afterRound: async () => {},
    stolenMs: () => 0,
    asUsual: () => true,
    signal: new AbortController().signal,
  };

  it('let everyone run in each, in other orders, and whoever uses the disk last', async () => {
    const log: string[] = [];
    const contestants = ['X', 'a', 'b', 'Y', 'c', 'd'].map((name) => contestant(name, log));
    const speeds = await measureRounds({ ...calm, contestants, trials: 3, rounds: 3 });
    for (const { rounds } of speeds.values()) expect(rounds).toBe(3);
    const orders = log.join('').match(/.{10}/g)!; // the first to warm up
    expect(orders.length).toBe(4);
    for (const order of orders) {
      expect(order.slice(0, 8)).toMatch(/^((.)\2)+$/); // twice each
      expect([...order.slice(0, 8)].toSorted().join('')).toBe('aabbccdd');
      expect([...order.slice(8)].toSorted().join('')).toBe('XY');
    }
    expect(new Set(orders).size).toBe(4);
  });

  it('go on with the fastest of several ways, which trials before them have found', async () => {
    const runs = new Map<string, number>();
    const way = (name: string, wayTo: string | undefined, ms: number) => ({
      name,
      bytes: 1,
      usesDisk: false,
      ...(wayTo === undefined ? {} : { wayTo }),
      async run() {
        runs.set(name, (runs.get(name) ?? 0) + 1);
        const until = performance.now() + ms;
        while (performance.now() < until);
      },
    });
    const speeds = await measureRounds({
      ...calm,
      contestants: [
        way('slow', 'copy', 8),
        way('fast', 'copy', 1),
        way('slower', 'copy', 16),
        way('else', undefined, 1),
      ],
      trials: 3,
      rounds: 2,
    });
    expect([...speeds.keys()]).toEqual(['fast', 'else']);
    expect(Object.fromEntries(runs)).toEqual({ slow: 6, fast: 10, slower: 6, else: 6 });
  });

  it('sample for a while what is over at once, cold caches only once, and warm none for the disk', async () => {
    const log: string[] = [];
    let nowMs = 0;
    const ofFourMs = (name: string) => ({
      ...contestant(name, log),
      prepare: () => void log.push('p'),
      async run() {
        log.push(name);
        nowMs += 4;
      },
    });
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
    const speeds = await measureRounds({
      ...calm,
      contestants: ['X', 'Y', 'a'].map(ofFourMs),
      trials: 1,
      rounds: 1,
      sampleMs: 38,
    }).finally(() => clock.mockRestore());
    const round = '(pa){11}((pX){10}pY|pY(pX){10})';
    expect(log.join('')).toMatch(new RegExp(`^(${round}){2}$`));
    for (const { gbps } of speeds.values()) expect(gbps * 1e9).toBeCloseTo(250);
  });

  it('run again whom the host of the machine has disturbed, and keep what it disturbed least', async () => {
    let takenMs = 0;
    const runs = { calm: 0, once: 0, always: 0 };
    const disturbed = (name: keyof typeof runs, takes: (run: number) => number) => ({
      name,
      bytes: 1,
      usesDisk: false,
      cold: true,
      run: async () => void (takenMs += takes(++runs[name])),
    });
    const speeds = await measureRounds({
      ...calm,
      contestants: [
        disturbed('calm', () => 0),
        disturbed('once', (run) => (run === 3 ? 1000 : 0)),
        disturbed('always', (run) => 1000 * (run % 5)),
      ],
      trials: 1,
      rounds: 4,
      stolenMs: () => takenMs,
    });
    expect(runs).toEqual({ calm: 1 + 4, once: 1 + 5, always: 1 + 6 });
    expect([...speeds.values()].map((speed) => speed.rounds)).toEqual([4, 4, 4]);
    expect([...speeds.values()].map((speed) => speed.disturbed)).toEqual([0, 0, 3]);
  });

  it('repeat runs with the cores elsewhere, as long as a sample is, and say where they stayed there', async () => {
    const log: string[] = [];
    let nowMs = 0;
    let runsAway = 0;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
    const measured = (away: number) => {
      log.length = 0;
      runsAway = away;
      const once = {
        ...contestant('a', log),
        async run() {
          log.push(runsAway > 0 ? 'x' : 'a');
          nowMs += runsAway-- > 0 ? 8 : 4;
        },
      };
      return measureRounds({
        ...calm,
        contestants: [once],
        trials: 1,
        rounds: 1,
        sampleMs: 16,
        untilMs: 0,
        asUsual: () => runsAway <= 0,
      });
    };
    try {
      const some = (await measured(8)).get('a')!;
      expect(log.join('')).toBe(`${'x'.repeat(5 + 3)}aaaa`);
      expect(some).toMatchObject({ gbps: 1 / 4 / 1e6, disturbed: 0 });
      const all = (await measured(Number.POSITIVE_INFINITY)).get('a')!;
      expect(all).toMatchObject({ gbps: 1 / 8 / 1e6, disturbed: 1 });
    } finally {
      clock.mockRestore();
    }
  });

  it('end when their time is over, but not before one is done', async () => {
    const log: string[] = [];
    const contestants = [{ ...contestant('a', log), closely: true }];
    const speeds = await measureRounds({
      ...calm,
      contestants,
      trials: 1,
      rounds: 9,
      roundsMax: 20,
      untilMs: 0,
    });
    expect(speeds.get('a')!.rounds).toBe(1);
    expect(speeds.get('a')!.gbps).toBeGreaterThan(0);
  });

  it('go on until medians are known closely, of all that are to be and use the disk, or of all that do not', async () => {
    let nowMs = 0;
    const runs = new Map<string, number>();
    const takes = (name: string, closely: boolean, ms: (run: number) => number) => ({
      ...contestant(name, []),
      cold: true,
      closely,
      async run() {
        const run = runs.get(name) ?? 0;
        runs.set(name, run + 1);
        nowMs += ms(run);
      },
    });
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
    const speeds = await measureRounds({
      ...calm,
      contestants: [
        takes('wild', false, (run) => 1 + run),
        takes('even', true, () => 1),
        takes('two', true, (run) => (run % 2 === 0 ? 10 : 12)),
        takes('EVEN', true, () => 1),
      ],
      trials: 1,
      rounds: 5,
      roundsMax: 12,
    }).finally(() => clock.mockRestore());
    const rounds = [...speeds].map(([name, speed]) => [name, speed.rounds]);
    expect(Object.fromEntries(rounds)).toEqual({ wild: 5, even: 12, two: 12, EVEN: 5 });
  });

  it('have medians and quantiles that are among the values', () => {
    expect(median([5, 1, 9])).toBe(5);
    expect(median([4, 2])).toBe(2);
    expect(quantile([1, 2, 3, 4], 0.99)).toBe(4);
    expect(quantile([], 0.5)).toBe(0);
  });
});

describe('the profile of the links', () => {
  const about = { device: 'a device', driver: 'a driver', date: '2026-01-01T00:00:00Z', software: true };

  it('is what the simulator loads, with all six links', () => {
    const profile = profileOf(rows, about);
    const read = parseLinkCalibration(JSON.stringify(profile), 'profile.json');
    expect(read).toMatchObject({ device: 'a device', software: true });
    expect(Object.keys(read.links).toSorted()).toEqual(oneWay.toSorted());
    const fallback = { baseLatencyUs: 0, bandwidthBytesPerS: 1 };
    expect(() => new LinkModel(read.links, fallback)).not.toThrow();
  });

  it('tells a runtime on the same adapter how to upload, so that it does not measure', async () => {
    const file = join(dir, 'uploads.json');
    writeFileSync(file, JSON.stringify(profileOf(rows, { ...about, device: device.live.adapter.name })));
    const profile = readUploadProfile(file);
    expect(profile.sizes.map((size) => size.bytes).toSorted((a, b) => a - b)).toEqual([16 * KIB, 64 * KIB]);
    for (const { bytes, uploadPath } of profile.sizes) {
      await using store = await HbmStore.open(device.live, poolShape(2, bytes, [bytes]), { profile });
      const { verification } = profile;
      expect(store.describe()).toMatchObject({ uploadPath, verification, strategy: 'profile' });
    }
    const elsewhere = { ...profile, device: 'another one' };
    await using measured = await HbmStore.open(device.live, poolShape(2, 4096, [4096]), {
      profile: elsewhere,
    });
    expect(measured.describe().strategy).toBe('measured');
  });

  it('that is none is refused by the name of what is wrong', () => {
    const good = profileOf(rows, about);
    const bad: [unknown, string][] = [
      [{ ...good, schema: 'tierkv.links/9' }, 'schema'],
      [{ ...good, device: 3 }, 'device'],
      [{ ...good, uploads: undefined }, 'uploads.verification'],
      [{ ...good, uploads: { ...good.uploads, sizes: [] } }, 'uploads.sizes'],
      [{ ...good, uploads: { ...good.uploads, sizes: [{ bytes: 0 }] } }, 'uploads.sizes[0].bytes'],
      [{ ...good, uploads: { ...good.uploads, sizes: [{ bytes: 4, uploadPath: 'x' }] } }, 'uploadPath'],
    ];
    const file = join(dir, 'bad.json');
    for (const [content, field] of bad) {
      writeFileSync(file, JSON.stringify(content));
      expect(() => readUploadProfile(file)).toThrow(field);
      expect(() => readUploadProfile(file)).toThrow(`Run tierkv calibrate --out ${file}`);
    }
    writeFileSync(file, '{');
    expect(() => readUploadProfile(file)).toThrow(/not JSON/);
    expect(() => readUploadProfile(join(dir, 'nowhere.json'))).toThrow(/cannot be read/);
  });

  it('gives back the bandwidth, the delay and the share that rows were made from', () => {
    const row = (link: string, bytes: number, gbps: number, p50Us: number): LinkRow => ({
      ...rows.find(
        (one) => one.link === link && one.pattern.startsWith('scattered') && one.verify !== 'none',
      )!,
      ...{ bytes, gbps, p50Us },
    });
    const linkUs = (bytes: number): number => 5 + bytes / 2000; // 5 µs and 2 GB/s
    const made = [64 * KIB, 1024 * KIB].flatMap((bytes) => [
      row('ddrToHbm', bytes, bytes / linkUs(bytes) / 1e3, linkUs(bytes) + 30),
      { ...row('ddrToHbm', bytes, bytes / linkUs(bytes) / 1e3, linkUs(bytes) + 30), link: 'hbmToDdr' },
      row('hbmToDdr+ddrToHbm', bytes, (1.2 * bytes) / linkUs(bytes) / 1e3, 1),
    ]);
    const { links } = parseLinkCalibration(JSON.stringify(profileOf(made, about)), 'profile.json');
    expect(links.ddrToHbm.baseLatencyUs).toBeCloseTo(5, 1);
    expect(links.ddrToHbm.bandwidthBytesPerS / 1e9).toBeCloseTo(2, 2);
    expect(links.ddrToHbm.delayUs).toBeCloseTo(30, 0);
    expect(links.ddrToHbm.bothWaysShare).toBeCloseTo(0.6, 3);
  });

  it('times the modeled replay', async () => {
    const file = join(dir, 'profile.json');
    writeFileSync(file, JSON.stringify(profileOf(rows, about)));
    const raw = { ...replayDefaults, driver: 'modeled', links: file, dir, skipBad: false };
    const trace = 'data/mooncake-conversation-excerpt.jsonl.gz';
    const options = parseReplayOptions(trace, raw, () => dir);
    const manager = new KVManager({
      unitBytes: [65_536],
      hbm: { capacityBytes: 65_536 },
      ddr: { capacityBytes: 65_536 },
    });
    await using tiers = await openTiers(manager, options, {
      progress() {},
      notice() {},
      signal: new AbortController().signal,
    });
    expect(tiers.adapter.name).toContain('a device');
    const { links } = parseLinkCalibration(readFileSync(file, 'utf8'), file);
    const model = new LinkModel(links, { baseLatencyUs: 1, bandwidthBytesPerS: 1 });
    tiers.driver.submit([
      {
        job: 1 as never,
        kind: 'move',
        source: { tier: Tier.DDR, slot: 0, generation: 1 },
        target: { tier: Tier.HBM, slot: 0, generation: 1 },
        sizeClass: 0,
        bytes: 65_536,
        key: new Uint32Array(4),
        digest: { lo: 0, hi: 0 },
        priority: 0,
        deadlineUs: Number.POSITIVE_INFINITY,
      },
    ]);
    await tiers.driver.take();
    expect(tiers.driver.nowUs()).toBe(model.endUs(Tier.DDR, Tier.HBM, 65_536, 0));
    expect(() => parseReplayOptions(trace, { ...raw, driver: 'real' }, () => dir)).toThrow(
      /--links needs the modeled driver/,
    );
    expect(() => parseReplayOptions(trace, { ...raw, links: '/none' }, () => dir)).toThrow(/not a file/);
  });
});
