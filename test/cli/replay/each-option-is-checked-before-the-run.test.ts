import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { parseReplayOptions } from '../../../src/cli/replay/parseOptions.ts';
import { type RawReplayOptions, replayDefaults } from '../../../src/cli/replay/words.ts';
import type { ReplayOptions } from '../../../src/studies/replay/options.ts';

const trace = join('data', 'mooncake-conversation-excerpt.jsonl.gz');
let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), 'tierkv-options-'));
  onTestFinished(() => fs.rmSync(dir, { recursive: true }));
});

const neverScratch = (): string => {
  throw new Error('a scratch directory was made for a run that cannot start');
};
const parse = (change: Partial<RawReplayOptions>, scratchDir = neverScratch) =>
  parseReplayOptions(
    change.inputs === undefined ? trace : undefined,
    { ...replayDefaults, skipBad: false, dir, ...change },
    scratchDir,
  );

const sizes = ({ tiers }: ReplayOptions) =>
  Object.fromEntries(tiers.map(({ name, blocks }) => [name, blocks]));

describe('good options', () => {
  it('become numbers and paths, and nothing is set that was not asked for', () => {
    expect(parse({ hbm: '10', ddr: '0', nvme: 'all', blockBytes: '64KiB' })).toEqual({
      tracePath: trace,
      tiers: [
        { name: 'hbm', blocks: 10 },
        { name: 'nvme', blocks: 'all', place: dir },
      ],
      blockBytes: 65_536,
      blockTokens: 512,
      driver: 'real',
      eviction: { policy: 'hazard', behindLru: 0.0025 },
      offloadThreshold: 1,
      linkBandwidthBytesPerS: 1e10,
      linkBaseLatencyUs: 10,
      skipBad: false,
    });
  });

  it('all optional ones together', () => {
    const inputs = join(dir, 'recorded');
    fs.writeFileSync(inputs, '');
    const [log, json] = [join(dir, 'log'), join(dir, 'json')];
    expect(parse({ driver: 'modeled', inputs })).toMatchObject({ tracePath: inputs, inputsPath: inputs });
    expect(parse({ driver: 'modeled', requests: '7', log, inputs, json, skipBad: true })).toMatchObject({
      driver: 'modeled',
      requests: 7,
      logPath: log,
      inputsPath: inputs,
      jsonPath: json,
      skipBad: true,
    });
    expect(fs.readdirSync(dir)).toEqual(['recorded']); // checking a target leaves no file behind
  });

  it('the modeled links in the units of the options', () => {
    const given = { driver: 'modeled', linkGbps: '.5', linkLatencyUs: '0', offloadThreshold: '0.9' };
    expect(parse(given)).toMatchObject({
      linkBandwidthBytesPerS: 5e8,
      linkBaseLatencyUs: 0,
      offloadThreshold: 0.9,
    });
  });

  it('a count in the notation of a number, as long as it is whole', () => {
    expect(sizes(parse({ hbm: '1e3', ddr: '+2.5e3', nvme: '2e4' }))).toEqual({
      hbm: 1000,
      ddr: 2500,
      nvme: 20_000,
    });
  });

  it('as many blocks as a replay can manage, of which a model holds no byte', () => {
    const most = {
      driver: 'modeled',
      hbm: '1',
      ddr: '0',
      nvme: '16777215',
      blockBytes: '64KiB',
    };
    expect(sizes(parse(most))).toEqual({ hbm: 1, nvme: 2 ** 24 - 1 });
  });

  it.each([
    ['all', '0', '0'],
    ['5', 'all', '0'],
    ['5', '5', 'all'],
    ['5', '0', 'all'],
    ['5', '0', '0'],
  ])('HBM %s, DDR %s, NVMe %s: the last tier that is on may be unbounded', (hbm, ddr, nvme) => {
    const on = sizes(parse({ hbm, ddr, nvme }));
    expect([on.hbm, on.ddr ?? 0, on.nvme ?? 0].map(String)).toEqual([hbm, ddr, nvme]);
  });

  it('without --dir a scratch directory is made, once', () => {
    let made = 0;
    const { dir: _, ...rest } = { ...replayDefaults, skipBad: false, dir };
    const options = parseReplayOptions(trace, rest, () => `scratch ${++made}`);
    expect(options.tiers.find(({ name }) => name === 'nvme')?.place).toBe('scratch 1');
    expect(made).toBe(1);
  });
});

describe('a bad option is an error that names it, and no scratch directory is made', () => {
  const notCounts = [
    '-1',
    '1.5',
    'NaN',
    'Infinity',
    '',
    'ten',
    '1e-3',
    '1e999',
    '0x10',
    '12abc',
    '10,000',
    '99999999999999999999',
  ];
  const counts: [option: string, name: keyof RawReplayOptions][] = [
    ['--hbm', 'hbm'],
    ['--ddr', 'ddr'],
    ['--nvme', 'nvme'],
    ['--block-tokens', 'blockTokens'],
    ['--num-requests', 'requests'],
  ];
  const bad: [option: string, change: Partial<RawReplayOptions>, says: RegExp][] = [
    ...counts.flatMap(([option, name]) =>
      notCounts.map((text): [string, Partial<RawReplayOptions>, RegExp] => [
        option,
        { [name]: text },
        /not an? (number|integer)/,
      ]),
    ),
    ['--hbm', { hbm: '0' }, /from 1 to/],
    ['--hbm', { hbm: '2147483648' }, /from 1 to 16777216/],
    ['--nvme', { nvme: '1e12' }, /is 1000000000000, not an integer from 0 to 16777216/],
    ['--nvme', { nvme: '1000000000', driver: 'modeled' }, /not an integer from 0 to 16777216/],
    ['--nvme', { nvme: '16777216' }, /all tiers together would have 16782216 blocks, more than/],
    ['--ddr', { ddr: '16000000', blockBytes: '1GiB', nvme: '0' }, /more than can be addressed/],
    ['--ddr', { ddr: '8000000', blockBytes: '1GiB' }, /this machine has a memory of/],
    ['--nvme', { ddr: '0', nvme: '8000000', blockBytes: '1GiB' }, /has free/],
    ['--num-requests', { requests: '0' }, /at least 1/],
    ['--num-requests', { requests: 'all' }, /not a number/],
    ['--block-tokens', { blockTokens: '0' }, /at least 1/],
    ['--hbm', { hbm: 'all' }, /turn the lower tier off with --ddr 0/],
    ['--hbm', { hbm: 'all', ddr: '0' }, /turn the lower tier off with --nvme 0/],
    ['--ddr', { ddr: 'all' }, /nothing would ever reach the tier of --nvme/],
    ['--nvme', { nvme: '10000000', blockBytes: '1GiB' }, /more than can be addressed/],
    ['--block-bytes', { blockBytes: '0' }, /not a positive multiple of 4/],
    ['--block-bytes', { blockBytes: '6' }, /is 6, not a positive multiple of 4/],
    ['--block-bytes', { blockBytes: '-4' }, /not a size/],
    ['--block-bytes', { blockBytes: '64KB' }, /not a size/],
    ...['-0.1', '1.01', 'NaN', '', 'half', '0x1'].map((text): [string, Partial<RawReplayOptions>, RegExp] => [
      '--offload-threshold',
      { offloadThreshold: text },
      /not a number|outside \[0, 1\]/,
    ]),
    ...['0', '-3', 'NaN', 'Infinity', '1e999', '', 'fast'].map(
      (text): [string, Partial<RawReplayOptions>, RegExp] => [
        '--link-gbps',
        { driver: 'modeled', linkGbps: text },
        /not a (positive finite )?number/,
      ],
    ),
    ...['-1', 'NaN', 'Infinity', '1e999', '', 'none'].map(
      (text): [string, Partial<RawReplayOptions>, RegExp] => [
        '--link-latency-us',
        { driver: 'modeled', linkLatencyUs: text },
        /not a|below|at least/,
      ],
    ),
    ['--driver', { driver: 'fast' }, /is "fast"\. Set it to real or modeled/],
    ['--link-gbps', { linkGbps: '5' }, /needs the modeled driver.*leave --link-gbps out/],
    ['--link-latency-us', { linkLatencyUs: '5' }, /needs the modeled driver/],
    ['--links', { links: 'package.json' }, /needs the modeled driver/],
    ['--inputs', { inputs: 'package.json' }, /needs the modeled driver/],
    ['--inputs', { inputs: 'package.json/x', driver: 'modeled' }, /is not a file/],
    ['--inputs', { inputs: 'no such file', driver: 'modeled' }, /is not a file/],
    ['--dir', { dir: join('no', 'such', 'directory') }, /does not exist\. Make the directory/],
    ['--dir', { dir: 'package.json' }, /is not a directory/],
    ['--json', { json: trace }, /the same file as TRACE/],
    ['--json', { log: 'out', json: './out' }, /the same file as --log/],
    [
      '--log',
      { driver: 'modeled', inputs: 'package.json', log: 'package.json' },
      /the same file as --inputs/,
    ],
  ];
  it.each(bad)('%s in %o', (field, change, says) => {
    const { dir: _, ...noDir } = { ...replayDefaults, skipBad: false, ...change } as RawReplayOptions;
    const raw = change.dir === undefined ? noDir : { ...noDir, dir: change.dir };
    const traced = change.inputs === undefined ? trace : undefined;
    expect(() => parseReplayOptions(traced, raw, neverScratch)).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field, message: expect.stringMatching(says) }),
    );
  });

  it('a trace and --inputs, of which one would not be read, and neither', () => {
    const raw = { ...replayDefaults, skipBad: false, driver: 'modeled' };
    expect(() => parseReplayOptions(trace, { ...raw, inputs: 'package.json' }, neverScratch)).toThrow(
      /^--inputs is read in place of a trace\. Leave data.*excerpt\.jsonl\.gz out, or --inputs\.$/,
    );
    expect(() => parseReplayOptions(undefined, raw, neverScratch)).toThrow(/^TRACE is missing/);
  });

  it.skipIf(!fs.existsSync('/proc/self'))('--dir where no file can be made', () => {
    expect(() => parse({ dir: '/proc' })).toThrow(
      expect.objectContaining({
        code: 'TKV_IO',
        field: '--dir',
        message: expect.stringMatching(/^--dir is \/proc, in which nothing can be written \(E.*Name another/),
      }),
    );
  });

  it.each(['log', 'json'] as const)('--%s in a directory that does not exist', (name) => {
    const path = join(dir, 'missing', 'file');
    expect(() => parse({ [name]: path })).toThrow(expect.objectContaining({ code: 'TKV_IO', path }));
  });
});
