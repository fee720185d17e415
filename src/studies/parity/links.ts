/**
 * The links of this machine as the prediction takes them: read from a profile, or measured now. They are
 * measured where they are used: a rehearsal before the run and one after it serve other traffic on a runtime
 * with tiers that overflow, so that blocks go over each link beside the steps and the digests of a server; a
 * time for each block, a delay, and whether blocks that are issued at once arrive at once, are fitted to what
 * they took.
 */

import fs from 'node:fs';
import path from 'node:path';
import { readText } from '../../io/files/inputs.ts';
import {
  type KVLayout,
  LogReader,
  LogReplayer,
  LogWriter,
  type ManagerConfig,
  type SchedulerHead,
  TOP,
} from '../../runtime/index.ts';
import { resolveConfig } from '../../runtime/manager/config.ts';
import { readLines } from '../../sim/build/mooncakeTrace.ts';
import { parseLinkCalibration } from '../../sim/latency/capacity.ts';
import { LinkModel, type LinkProfile, type LinkProfiles } from '../../sim/links/modeledDriver.ts';
import { importedRequest, traceOrigin } from '../../sim/workload/importers.ts';
import type { WorkloadRequest } from '../../sim/workload/request.ts';
import { askedRows, type SizedTier } from '../replay/sizedTiers.ts';
import { bothSinks, type ObservedTransfer, RunObserver } from './observer.ts';
import { type ParityRunner, type RunnerJob, type ServedTraffic, trafficOf } from './traffic.ts';

export interface KnownLinks {
  readonly profiles: LinkProfiles;
  /** Where they are from, for the report. */
  readonly origin: string;
  /** Time of a step beyond its model; 0 where no rehearsal has measured it. */
  readonly stepOverheadUs: number;
}

export function readLinks(file: string): KnownLinks {
  const { links, device } = parseLinkCalibration(readText(file), file);
  return { profiles: links, origin: `of ${file} (${device})`, stepOverheadUs: 0 };
}

const PROMPTS = 48;
/** Blocks of the longest prompt, and its tokens. */
const LONGEST = 96;
const LONGEST_TOKENS = 8192;

function longestBlocks(blockTokens: number): number {
  return Math.min(LONGEST, Math.max(4, Math.floor(LONGEST_TOKENS / blockTokens)));
}

/**
 * The tiers of a rehearsal: as large as the run's, since memory that fits a processor's caches is faster, but so small that
 * its prompts overflow them.
 */
export function rehearsalTiers(
  run: readonly SizedTier<number>[],
  blockTokens: number,
): readonly SizedTier<number>[] {
  const longest = longestBlocks(blockTokens);
  const inMemory = askedRows().filter(({ isHostMemory }) => isHostMemory === true);
  return run.map((tier, position) => {
    const isMemory = inMemory.some(({ name }) => name === tier.name);
    const most = (position === TOP ? 4 : isMemory ? 6 : 32) * longest;
    return { ...tier, blocks: Math.max(2 * longest, Math.min(tier.blocks, most)) };
  });
}

const ANSWER_TOKENS = 8;
/** A prompt is asked anew after this number of prompts: it lies in a lower tier by then. */
const COMES_BACK = [10, 25];
const GAP_US = 120_000;

/** Most bytes that a link of the engine carries as one copy. */
const COPY_BYTES = 4 * 1024 * 1024;

/** Measurements of a rehearsal. */
export interface Rehearsal {
  readonly transfers: readonly ObservedTransfer[];
  readonly stepOverheadUs: number;
}

/** @param runner of the rehearsal's tiers */
export async function rehearse(
  runner: ParityRunner,
  { blockTokens }: KVLayout,
  scratch: string,
  job: Omit<RunnerJob, 'traffic' | 'logPath'>,
): Promise<Rehearsal> {
  const logPath = path.join(scratch, 'rehearsal.log');
  const { stepOverheadUs = 0 } = await runner.run({
    ...job,
    traffic: rehearsalTraffic(blockTokens),
    logPath,
  });
  const { observed } = await replayExactly(logPath, job.signal);
  return { transfers: observed.transfers, stepOverheadUs };
}

/** The links under which all rehearsals together come out best. */
export function linksOfRehearsals(rehearsals: readonly Rehearsal[], blockBytes: number): KnownLinks {
  const names = [...new Set(rehearsals.flatMap(({ transfers }) => transfers.map(({ link }) => link)))];
  const profiles = Object.fromEntries(
    names.map((name) => {
      const runs = rehearsals.map(({ transfers }) => transfers.filter(({ link }) => link === name));
      return [
        name,
        fitLink(
          runs.filter((run) => run.length > 0),
          blockBytes,
        ),
      ];
    }),
  );
  const overheads = rehearsals.map(({ stepOverheadUs }) => stepOverheadUs);
  const stepOverheadUs = Math.round(overheads.reduce((sum, us) => sum + us, 0) / overheads.length);
  return { profiles, origin: 'measured in rehearsals before and after', stepOverheadUs };
}

/** Prompts of all lengths, each of blocks of its own, and between them some that were asked before. */
export function rehearsalTraffic(blockTokens: number): ServedTraffic {
  const longest = longestBlocks(blockTokens);
  const order = Array.from({ length: PROMPTS }, (_, i) => [i, ...COMES_BACK.map((ago) => i - ago)]);
  const prompts = order.flat().filter((prompt) => prompt >= 0);
  const request = (prompt: number, number: number): WorkloadRequest => {
    const blocks = 1 + ((prompt * 7) % longest);
    const runs = Int32Array.of(prompt * longest, blocks);
    const namespace = 'rehearsal';
    const row = {
      index: number,
      origin: traceOrigin(''),
      arrivalUs: GAP_US * number,
      inputTokens: blocks * blockTokens + 1,
      outputTokens: ANSWER_TOKENS,
      prompt: { kind: 'blocks', namespace, blockTokens, runs },
      output: { kind: 'blocks', namespace, blockTokens, runs: new Int32Array(0) },
    } as const;
    return { ...importedRequest(row), id: `rehearsal_${number}` };
  };
  const open = (): ReturnType<ServedTraffic['open']> => {
    let number = 0;
    return {
      stream: { next: () => (number < prompts.length ? request(prompts[number], number++) : undefined) },
      sessions: undefined,
    };
  };
  return trafficOf(open, 1);
}

/** Candidates of a figure in microseconds: twelve to each factor of ten, from 10 µs to 100 ms. */
const candidatesUs: readonly number[] = Array.from({ length: 49 }, (_, i) => 10 ** (1 + i / 12));

/**
 * The profile under which the observed transfers, each issued when it was, would have taken what they took:
 * with the least mean distance of logarithms, which slow ones do not move.
 * @param runs of one link, each with a clock of its own
 */
function fitLink(runs: readonly (readonly ObservedTransfer[])[], blockBytes: number): LinkProfile {
  let best: LinkProfile = { baseLatencyUs: 0, bandwidthBytesPerS: 1e9 };
  let least = Infinity;
  for (const perBlockUs of candidatesUs) {
    for (const delayUs of [0, ...candidatesUs]) {
      for (const batchBytes of [0, COPY_BYTES]) {
        const bandwidthBytesPerS = (blockBytes * 1e6) / perBlockUs;
        const profile = { baseLatencyUs: 0, bandwidthBytesPerS, delayUs, batchBytes };
        const distance = runs.reduce((sum, run) => sum + distanceOf(run, profile, blockBytes), 0);
        if (distance < least) [best, least] = [profile, distance];
      }
    }
  }
  return best;
}

function distanceOf(transfers: readonly ObservedTransfer[], profile: LinkProfile, bytes: number): number {
  const priced = priceTransfers(transfers, { [transfers[0].link]: profile }, bytes);
  let sum = 0;
  for (const [i, us] of priced.entries())
    sum += Math.abs(Math.log(us / Math.max(transfers[i].durationUs, 1)));
  return sum / priced.length;
}

//  Times of observed transfers on modeled links, each issued when it was.

/**
 * @param bytes of each transfer
 * @returns microseconds, in the order of `transfers`
 */
export function priceTransfers(
  transfers: readonly ObservedTransfer[],
  links: LinkProfiles,
  bytes: number,
): Float64Array {
  const model = new LinkModel(links, { baseLatencyUs: 0, bandwidthBytesPerS: 1e15 });
  const endsUs = new Float64Array(transfers.length);
  const inOrder = transfers.map((_, i) => i).sort((a, b) => transfers[a].issue - transfers[b].issue);
  /** The copy under way on each link. */
  const copies: Map<string, { issuedUs: number; bytes: number; members: number[] }> = new Map();
  for (const i of inOrder) {
    const { link, from, to, issuedUs } = transfers[i];
    endsUs[i] = model.endUs(from, to, bytes, issuedUs);
    const most = model.batchBytes(from, to);
    const copy = copies.get(link);
    if (copy === undefined || copy.issuedUs !== issuedUs || copy.bytes + bytes > most) {
      copies.set(link, { issuedUs, bytes, members: [i] });
      continue;
    }
    copy.bytes += bytes;
    copy.members.push(i);
    for (const member of copy.members) endsUs[member] = endsUs[i];
  }
  return endsUs.map((endUs, i) => endUs - transfers[i].issuedUs);
}

// The first half of parity: the inputs of a recorded run are given to a fresh manager and scheduler, which
// are the simulator's. The log that they write has to be the recorded one, byte for byte.

export interface ExactReplay {
  readonly identical: boolean;
  readonly lines: number;
  readonly bytes: number;
  /** Where the logs first differ, or null. */
  readonly firstDifference: number | null;
  readonly config: ManagerConfig;
  readonly scheduler: SchedulerHead;
  /** The observer of the recorded run. */
  readonly observed: RunObserver;
}

/** Compares text, as it comes, with the bytes of a file. */
class FileComparison implements Disposable {
  firstDifference: number | null = null;
  bytes = 0;
  readonly #file: number;

  constructor(path: string) {
    this.#file = fs.openSync(path, 'r');
  }

  take(text: string): void {
    const made = Buffer.from(text);
    const there = Buffer.alloc(made.length);
    fs.readSync(this.#file, there, 0, made.length, this.bytes);
    if (this.firstDifference === null && !made.equals(there)) {
      this.firstDifference = this.bytes + made.findIndex((byte, i) => byte !== there[i]);
    }
    this.bytes += made.length;
  }

  /** Nothing follows: what the file has more is a difference. */
  end(): void {
    if (this.firstDifference === null && fs.fstatSync(this.#file).size !== this.bytes) {
      this.firstDifference = this.bytes;
    }
  }

  [Symbol.dispose](): void {
    fs.closeSync(this.#file);
  }
}

/**
 * @param path the decision log of a run with one scheduler
 * @throws TKV_INPUT naming file and line for a log that is damaged, cut or without a scheduler
 */
export async function replayExactly(path: string, signal: AbortSignal): Promise<ExactReplay> {
  const log = new LogReader(path);
  const progress = { bytesRead: 0, bytesTotal: 0, lines: 0 };
  const lines = readLines(path, progress);
  const head = await lines.next();
  if (head.done === true) throw log.broken('is empty', 1);
  log.read(head.value);
  using comparison = new FileComparison(path);
  const observed = new RunObserver(resolveConfig(log.config).tiers.map(({ tier }) => tier));
  const writer = new LogWriter(log.config, { log: (text) => comparison.take(text) });
  const replayer = new LogReplayer(log, bothSinks(writer, observed));
  replayer.manager.observe(observed.finds);
  let scheduler: SchedulerHead | undefined;
  for await (const line of lines) {
    signal.throwIfAborted();
    const input = log.read(line);
    if (input === undefined) continue;
    if (input.of === 'scheduler') scheduler ??= input.head;
    replayer.apply(input);
  }
  log.finish();
  writer.end();
  comparison.end();
  if (scheduler === undefined) throw log.broken('is the end, and no scheduler ran');
  const { firstDifference, bytes } = comparison;
  const identical = firstDifference === null;
  return { identical, lines: log.line, bytes, firstDifference, config: log.config, scheduler, observed };
}
