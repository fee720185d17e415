/**
 * The link profile that `tierkv calibrate` writes: for each direction between tiers a base latency and a
 * bandwidth, or the measured sizes they are fitted from. The result is what the modeled driver takes, so that
 * a simulated transfer lasts as long as a real one on the machine that was measured.
 *
 *     { "schema": "tierkv.links/1", "device": "...", "software": false,
 *       "links": { "hbmToDdr": { "baseLatencyUs": 12.5, "bandwidthBytesPerS": 2.1e10 },
 *                  "ddrToHbm": { "sizes": [ { "bytes": 65536, "latencyUs": 20 }, ... ],
 *                                "delayUs": 35, "bothWaysShare": 0.7 } } }
 */

import { linkName, Tier } from '../../runtime/tier/tier.ts';
import type { LinkProfile, LinkProfiles } from '../driver/linkModel.ts';
import { readYaml, type SpecNode } from '../workload/spec/reader.ts';

export const linkSchema = 'tierkv.links/1';

/** One measured transfer: its size and how long it took. */
export interface LinkSample {
  readonly bytes: number;
  readonly latencyUs: number;
}

export interface LinkCalibration {
  /** Adapter or machine as the measurement names it. */
  readonly device: string;
  /** Whether it was a software device, whose times mean nothing for hardware. */
  readonly software: boolean;
  readonly links: LinkProfiles;
}

/**
 * Base latency and bandwidth with the least relative squared error over the samples; neither is negative.
 * @param samples at least two sizes.
 */
export function fitLink(samples: readonly LinkSample[]): LinkProfile {
  // minimise the sum of ((a + b x - y) / y)^2
  let [w, wx, wxx, wy, wxy] = [0, 0, 0, 0, 0];
  for (const { bytes, latencyUs } of samples) {
    const weight = 1 / (latencyUs * latencyUs);
    w += weight;
    wx += weight * bytes;
    wxx += weight * bytes * bytes;
    wy += weight * latencyUs;
    wxy += weight * bytes * latencyUs;
  }
  const determinant = w * wxx - wx * wx;
  let perByte = (w * wxy - wx * wy) / determinant;
  let base = (wy - perByte * wx) / w;
  if (!(base >= 0)) {
    base = 0;
    perByte = wxy / wxx;
  }
  if (!(perByte > 0)) {
    // a link whose time does not grow over the measured sizes is at least as fast as its largest sample says
    const largest = samples.reduce((a, b) => (b.bytes > a.bytes ? b : a));
    base = 0;
    perByte = largest.latencyUs / largest.bytes;
  }
  return { baseLatencyUs: base, bandwidthBytesPerS: 1e6 / perByte };
}

const directions: readonly string[] = Object.values(Tier).flatMap((from) =>
  Object.values(Tier)
    .filter((to) => to !== from)
    .map((to) => linkName(from, to)),
);

/** Most bytes of a transfer, or of a link in a second. */
const maxBytes = 1e15;
/** Longest time of a transfer: a day. */
const maxUs = 86_400e6;

function linkOf(node: SpecNode): LinkProfile {
  const samples = node.list('sizes').map((sample): LinkSample => {
    const bytes = sample.integer('bytes', { min: 1, max: maxBytes }, Number.NaN);
    const latencyUs = sample.number('latencyUs', { min: 1e-3, max: maxUs }, Number.NaN);
    if (Number.isNaN(bytes)) throw sample.error('bytes', 'is missing', 'Give the size of the transfer');
    if (Number.isNaN(latencyUs)) throw sample.error('latencyUs', 'is missing', 'Give the time it took');
    sample.close();
    return { bytes, latencyUs };
  });
  const baseLatencyUs = node.optionalNumber('baseLatencyUs', { min: 0, max: maxUs });
  const bandwidthBytesPerS = node.optionalNumber('bandwidthBytesPerS', { min: 1, max: maxBytes });
  const delayUs = node.optionalNumber('delayUs', { min: 0, max: maxUs });
  const bothWaysShare = node.optionalNumber('bothWaysShare', { min: 1e-3, max: 1 });
  const batchBytes = node.optionalNumber('batchBytes', { min: 0, max: maxBytes });
  node.close();
  const more = {
    ...(delayUs === undefined ? {} : { delayUs }),
    ...(bothWaysShare === undefined ? {} : { bothWaysShare }),
    ...(batchBytes === undefined ? {} : { batchBytes }),
  };
  if (bandwidthBytesPerS !== undefined) {
    return { baseLatencyUs: baseLatencyUs ?? 0, bandwidthBytesPerS, ...more };
  }
  if (new Set(samples.map((sample) => sample.bytes)).size < 2) {
    const remedy = 'Give it in bytes/s, or list transfers of at least two sizes under sizes';
    throw node.error('bandwidthBytesPerS', 'is missing', remedy);
  }
  return { ...fitLink(samples), ...more };
}

/** The profiles under `links`, by direction; undefined when there is no such key. */
export function readLinks(root: SpecNode): LinkProfiles | undefined {
  const section = root.section('links');
  if (section === undefined) return undefined;
  const links: Record<string, LinkProfile> = {};
  for (const name of directions) {
    const link = section.section(name);
    if (link !== undefined) links[name] = linkOf(link);
  }
  section.close();
  return links;
}

/**
 * Reads the text of a link profile.
 * @throws {TierKVError} TKV_INPUT with file, line and key.
 */
export function parseLinkCalibration(text: string, file: string): LinkCalibration {
  const root = readYaml(text, file);
  root.choice('schema', [linkSchema]);
  const device = root.text('device');
  const software = root.flag('software') ?? false;
  root.text('driver');
  root.text('date');
  root.flag('sustained');
  root.has('uploads'); // how the runtime uploads: known, and of no interest to a model of links
  const links = readLinks(root);
  if (links === undefined) throw root.error('links', 'is missing', 'Run tierkv calibrate --out FILE');
  root.close();
  return { device, software, links };
}
