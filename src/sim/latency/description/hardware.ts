/**
 * What a latency model knows about a GPU, read from a data file of ours or from one entry of upstream's
 * `hardware_config.json`. Every number is checked; an unknown key is an error with the nearest known one.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import { nearestName } from '../../../runtime/nearestName.ts';
import { shownPlain } from '../../workload/shown.ts';
import { readYaml, type SpecNode } from '../../workload/spec/reader.ts';

export interface Hardware {
  readonly name: string;
  /** Other names under which users ask for it. */
  readonly aliases: readonly string[];
  /** Dense 16-bit tensor peak in TFLOP/s. */
  readonly peakTflops: number;
  /** Dense 8-bit tensor peak in TFLOP/s; 0 when the GPU has no such units. */
  readonly peakTflops8bit: number;
  /** Memory bandwidth in TB/s, 10^12 bytes a second. */
  readonly memoryTbPerS: number;
  readonly memoryGib: number;
  /** Shares of the peak that `roofline` takes as reached in prefill and decode. */
  readonly mfuPrefill: number;
  readonly mfuDecode: number;
  /** Bandwidth to the other GPUs of a node in one direction, GB/s; 0 when there is no fast link. */
  readonly interconnectGbPerS: number;
}

/** What a data sheet may say of a GPU, in any of the units here. */
const figure = { min: 1e-4, max: 1e7 } as const;

function readOurs(node: SpecNode): Hardware {
  const hardware: Hardware = {
    name: node.text('name'),
    aliases: node
      .text('aliases')
      .split(/\s*,\s*/)
      .filter((alias) => alias !== ''),
    peakTflops: node.number('peakTflops', figure, Number.NaN),
    peakTflops8bit: node.number('peakTflops8bit', { min: 0, max: figure.max }, 0),
    memoryTbPerS: node.number('memoryTbPerS', figure, Number.NaN),
    memoryGib: node.number('memoryGib', figure, Number.NaN),
    mfuPrefill: node.number('mfuPrefill', { ...figure, max: 1 }, Number.NaN),
    mfuDecode: node.number('mfuDecode', { ...figure, max: 1 }, Number.NaN),
    interconnectGbPerS: node.number('interconnectGbPerS', { min: 0, max: figure.max }, 0),
  };
  node.text('source');
  node.close();
  if (hardware.name === '') throw node.error('name', 'is missing', 'Name the GPU as users will type it');
  for (const [key, value] of Object.entries(hardware)) {
    if (Number.isNaN(value)) throw node.error(key, 'is missing', "Take it from the vendor's data sheet");
  }
  return hardware;
}

/**
 * Reads the text of one GPU file (`data/hardware/*.json`).
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseHardware(text: string, file: string): Hardware {
  return readOurs(readYaml(text, file));
}

/**
 * Reads upstream's `hardware_config.json`: GPU name to TFlopsPeak, TFlopsFP8, BwPeakTBs, mfuPrefill,
 * mfuDecode, MemoryGiB.
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseUpstreamHardware(text: string, file: string): Hardware[] {
  const root = readYaml(text, file);
  return root.keys().map((name) => {
    const node = root.section(name);
    if (node === undefined) throw root.error(name, 'is empty', 'Give it the figures of the GPU');
    const need = (key: string, max: number = figure.max): number => {
      const value = node.optionalNumber(key, { ...figure, max });
      if (value === undefined) throw node.error(key, 'is missing', "Take it from the vendor's data sheet");
      return value;
    };
    node.text('_comment');
    const hardware: Hardware = {
      name,
      aliases: [],
      peakTflops: need('TFlopsPeak'),
      peakTflops8bit: node.number('TFlopsFP8', { min: 0, max: figure.max }, 0),
      memoryTbPerS: need('BwPeakTBs'),
      memoryGib: need('MemoryGiB'),
      mfuPrefill: need('mfuPrefill', 1),
      mfuDecode: need('mfuDecode', 1),
      interconnectGbPerS: 0,
    };
    node.close();
    return hardware;
  });
}

/**
 * The one of `names` that `asked` means, ignoring case.
 * @param what the kind of thing, for the message; @param remedy how to add one.
 * @throws {TierKVError} TKV_CONFIG with the nearest name and all names.
 */
export function requireKnownName(
  what: string,
  asked: string,
  names: readonly string[],
  remedy: string,
): string {
  const found = names.find((name) => name.toLowerCase() === asked.toLowerCase());
  if (found !== undefined) return found;
  const near = nearestName(asked, names);
  const hint = near === undefined ? '' : ` Did you mean ${near}?`;
  throw new TierKVError(
    'TKV_CONFIG',
    `there is no ${what} "${shownPlain(asked)}".${hint} Known: ${[...names].sort().join(', ')}. ${remedy}`,
    { field: what },
  );
}
