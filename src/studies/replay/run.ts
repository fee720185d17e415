/** The run behind `tierkv replay`: survey the trace, open the stores, serve every request, report. */

import { createHash, type Hash } from 'node:crypto';
import fs from 'node:fs';
import { openToWrite, writeWhole } from '../../backends/host/posix.ts';
import {
  BlockKeys,
  type Completion,
  type DecisionSink,
  type EndListener,
  Entry,
  ExternalKeys,
  type IssuedJobs,
  JobCarrier,
  type JobId,
  KVManager,
  LogReader,
  LogReplayer,
  LogWriter,
  linkName,
  type ManagerConfig,
  type Sequence,
  type TransferDriver,
  tierName,
  tierNames,
} from '../../runtime/index.ts';
import { readLines, readMooncakeTrace } from '../../sim/build/mooncakeTrace.ts';
import { openTiers as openModeledTiers } from './modeledTiers.ts';
import {
  type DriverName,
  type ReplayOptions,
  surveyTrace,
  type TraceReplayListener,
  traceOptions,
} from './options.ts';
import type { ReplayReport } from './report.ts';
import { askedRows, isAlwaysAsked } from './sizedTiers.ts';
import {
  type BlockBytes,
  type OpenReplayTiers,
  type ReplayedPlace,
  type ReplayTiers,
  replaySizes,
} from './tiers.ts';

/** @throws {TierKVError} for a bad trace, a device or a directory that cannot be used */
export async function runReplay(
  options: ReplayOptions,
  listener: TraceReplayListener,
): Promise<ReplayReport> {
  const started = performance.now();
  if (options.inputsPath !== undefined) return replayInputs(options, options.inputsPath, listener, started);

  const survey = await surveyTrace(options, listener.signal);
  const sizes = replaySizes(options, survey);
  using log = new DecisionLog(sizes.config, options.logPath);
  const manager = new KVManager(sizes.config, log.sink);
  const { openTiers } = await tiersFor(options.driver);
  await using tiers = await openTiers(manager, options, listener);
  const session = new ReplaySession(manager, tiers, {
    blockTokens: options.blockTokens,
    topBlocks: sizes.topBlocks,
    window: sizes.window,
  });

  const told = listener.watch?.(manager);
  const hits = createHash('sha256');
  let requests = 0;
  let blocks = 0;
  let skippedLines = 0;
  const onSkip = (): void => {
    skippedLines++;
  };
  for await (const request of readMooncakeTrace(options.tracePath, {
    ...traceOptions(options),
    onSkip,
    signal: listener.signal,
  })) {
    listener.signal.throwIfAborted();
    const { arrivalUs } = request;
    const beganUs = tiers.nowUs();
    hits.update(`${await session.request(request.hashIds, arrivalUs)}\n`);
    if (told !== undefined) {
      const { blockTokens } = options;
      const tookUs = tiers.nowUs() - beganUs;
      told({ number: requests, arrivalUs, tookUs, blocks: request.hashIds.length, blockTokens });
    }
    requests++;
    blocks += request.hashIds.length;
    listener.progress({ requests, blocks, blocksTotal: survey.blockLookups, bytesMoved: tiers.bytesMoved() });
  }
  return {
    ...figures(manager, tiers),
    ...(await topAlone(options, listener)),
    requests,
    blockLookups: survey.blockLookups,
    hitDigest: hits.digest('hex'),
    verified: session.verified,
    verifyFailures: session.verifyFailures,
    wallSeconds: (performance.now() - started) / 1000,
    decisionDigest: log.digest(),
    driver: options.driver,
    skippedLines,
  };
}

/** The same requests without the lower tiers: no bytes move, and the manager decides as it would on real ones. */
async function topAlone(
  options: ReplayOptions,
  { signal }: TraceReplayListener,
): Promise<Pick<ReplayReport, 'hbmAloneHits'>> {
  const { logPath: _log, jsonPath: _json, linksPath: _links, ...same } = options;
  const [top, ...lower] = options.tiers;
  if (same.driver === 'modeled' || lower.length === 0) return {};
  const alone: ReplayOptions = { ...same, driver: 'modeled', tiers: [top] };
  const { hits } = await runReplay(alone, { signal, notice: () => {}, progress: () => {} });
  return { hbmAloneHits: hits[top.name] };
}

/** Only a real run loads the GPU's binding. */
function tiersFor(driver: DriverName): Promise<{ openTiers: OpenReplayTiers }> {
  return driver === 'real' ? import('./realTiers.ts') : import('./modeledTiers.ts');
}

async function replayInputs(
  options: ReplayOptions,
  path: string,
  listener: TraceReplayListener,
  started: number,
): Promise<ReplayReport> {
  const lines = new LogReader(path);
  const hits = createHash('sha256');
  let requests = 0;
  let blockLookups = 0;
  const progress = { bytesRead: 0, bytesTotal: 0, lines: 0 };
  const texts = readLines(path, progress);
  const head = await texts.next();
  if (head.done === true) throw lines.broken('is empty', 1);
  lines.read(head.value);
  using log = new DecisionLog(lines.config, options.logPath);
  const run = new LogReplayer(lines, log.sink, {
    opened: ({ matched }, blocks) => {
      requests++;
      blockLookups += blocks;
      hits.update(`${matched}\n`);
    },
  });
  for await (const text of texts) {
    listener.signal.throwIfAborted();
    const input = lines.read(text);
    if (input !== undefined) run.apply(input);
  }
  lines.finish();
  const { manager } = run;
  await using tiers = await openModeledTiers(manager, options, listener);
  return {
    ...figures(manager, tiers),
    requests,
    blockLookups,
    hitDigest: hits.digest('hex'),
    verified: 0,
    verifyFailures: 0,
    wallSeconds: (performance.now() - started) / 1000,
    decisionDigest: log.digest(),
    driver: 'modeled',
    skippedLines: 0,
  };
}

function figures(
  { inspect: { tiers: on, counters }, config }: KVManager,
  tiers: ReplayTiers,
): Pick<ReplayReport, 'hits' | 'demotions' | 'bytesMoved' | 'gbps' | 'adapter' | 'tiers' | 'policy'> {
  const names = on.map((tier) => tierName(tier));
  const asked = askedRows().filter((row) => isAlwaysAsked(row) || names.includes(row.name));
  const always = asked.map(({ name }) => name);
  const told = [...always, ...names.filter((name) => !always.includes(name))];
  const none = told
    .slice(1)
    .map((name, i) => [linkName(tierNames.indexOf(told[i]), tierNames.indexOf(name)), 0]);
  const down = on.slice(1).map((tier, i) => [linkName(on[i], tier), counters.demotions[i]]);
  return {
    hits: Object.fromEntries(told.map((name) => [name, counters.hits[names.indexOf(name)] ?? 0])),
    demotions: { ...Object.fromEntries([...none, ...down]), dropped: counters.dropped },
    ...tiers.traffic(),
    policy: config.eviction.policy,
    adapter: tiers.adapter,
    tiers: tiers.describe(),
  };
}

// One request after the other through the manager, as the traces' ground truth defines it: look up the whole
// prefix, bring what lower tiers hold, compute the rest, and let all blocks go from the last to the first.
// The tiers are exclusive: a block that moves up leaves the tier that it came from, a block that the top tier has
// no room for moves down.
//
// The session is the same for every driver. It hands the ends of jobs to the manager in the order of
// submission (orderedEnds.ts), so its decisions depend on the trace and the configuration alone.

export class ReplaySession {
  readonly manager: KVManager;
  verified = 0;
  verifyFailures = 0;
  readonly #driver: OrderedEnds;
  readonly #advance: ReplayTiers['advance'];
  readonly #bytes: BlockBytes | null;
  readonly #shared: ReplayTiers['shared'];
  readonly #chain: ExternalKeys = new ExternalKeys({ tenant: 'replay', epoch: 0 });
  readonly #keys: BlockKeys = new BlockKeys(256);
  readonly #blockTokens: number;
  readonly #topBlocks: number;
  readonly #window: number;

  /** @param window most blocks that are brought or computed at a time when a request is larger than the top tier */
  constructor(
    manager: KVManager,
    tiers: Pick<ReplayTiers, 'driver' | 'bytes' | 'advance' | 'shared'>,
    sizes: { blockTokens: number; topBlocks: number; window: number },
  ) {
    this.manager = manager;
    this.#driver = new OrderedEnds(tiers.driver);
    this.#advance = tiers.advance;
    this.#bytes = tiers.bytes;
    this.#shared = tiers.shared;
    const carrier = new JobCarrier(manager, this.#driver);
    manager.listen({ jobsIssued: () => carrier.submit() });
    this.#blockTokens = sizes.blockTokens;
    this.#topBlocks = sizes.topBlocks;
    this.#window = sizes.window;
  }

  /**
   * @param arrivalUs when it arrived, in the trace's time
   * @returns leading blocks that were found in any tier
   */
  async request(hashIds: Float64Array, arrivalUs: number): Promise<number> {
    const count = hashIds.length;
    this.#driver.arrivedAt(arrivalUs);
    this.#chain.hashBlocks(hashIds, 0, this.#keys);
    await this.#findShared(count);
    const sequence = this.manager.open(this.#keys.words, count, this.#driver.nowUs());
    const window = count <= this.#topBlocks ? count : this.#window;
    for (let to = count; to > 0; to -= window) {
      await this.#blocks(sequence, hashIds, Math.max(0, to - window), to);
    }
    this.manager.release(sequence, this.#driver.nowUs());
    await this.#until(() => this.manager.inspect.jobsInFlight === 0);
    return sequence.matched;
  }

  /** Makes known which blocks of the request other runs left in the shared tier. */
  async #findShared(count: number): Promise<void> {
    const { manager } = this;
    const { words } = this.#keys;
    const from = manager.matchLength(words, count);
    if (this.#shared === undefined || from >= count) return;
    const { tier, position } = this.#shared;
    const found = await tier.lookup([{ keys: words, from, to: count, sizeClass: 0 }]);
    for (const block of found.flat()) {
      const place = manager.adoptFound(position, { ...block, owner: 0 }, this.#driver.nowUs());
      if (place !== undefined) tier.believe(place, block.key);
    }
  }

  /**
   * Brings blocks [from, to) to the top tier, loaded or computed, verifies blocks that were there before, and lets them
   * go.
   */
  async #blocks(sequence: Sequence, ids: Float64Array, from: number, to: number): Promise<void> {
    const { manager } = this;
    const matched = Math.min(Math.max(sequence.matched, from), to);
    manager.load(sequence, this.#driver.nowUs(), from, matched);
    manager.allocate(sequence, matched, to, this.#driver.nowUs());
    await this.#until(() => sequence.pending === 0);
    const found: ReplayedPlace[] = [];
    const failed: number[] = [];
    for (let i = from; i < matched; i++) {
      const block = manager.loadedBlock(sequence, i);
      if (block !== undefined) found.push({ slot: block.slot, generation: block.generation, id: ids[i] });
      else failed.push(i);
    }
    for (const i of failed) manager.allocate(sequence, i, i + 1, this.#driver.nowUs());
    if (failed.length > 0) await this.#until(() => sequence.pending === 0);
    this.#compute(sequence, ids, from, to);
    const verdict = this.#bytes === null ? Promise.resolve(0) : this.#bytes.verify(found);
    await this.#until(() => sequence.pending === 0);
    this.verified += found.length;
    this.verifyFailures += await verdict;
    manager.releaseRange(sequence, from, to, this.#driver.nowUs());
  }

  /** Writes and seals every open block of [from, to). */
  #compute(sequence: Sequence, ids: Float64Array, from: number, to: number): void {
    const open: ReplayedPlace[] = [];
    for (let i = from; i < to; i++) {
      const block = this.manager.openBlock(sequence, i);
      if (block !== undefined) open.push({ slot: block.slot, generation: block.generation, id: ids[i] });
    }
    if (open.length > 0) this.#bytes?.write(open);
    for (let i = from; i < to; ) {
      let end = i;
      while (end < to && sequence.state[end] === Entry.OPEN) end++;
      if (end > i) {
        this.manager.seal(sequence, i, end, this.#keys.words, i * 4, this.#blockTokens, this.#driver.nowUs());
      }
      i = Math.max(end, i + 1);
    }
  }

  /** Lets the driver work until the condition holds, and hands ends to the manager no further than needed. */
  async #until(done: () => boolean): Promise<void> {
    while (!done()) {
      if (this.#driver.handOut()) continue;
      if (this.#advance === null) await this.#driver.arrival();
      else this.#advance();
    }
  }
}

// A driver whose ends are handed out in the order of submission, one by one and when asked for. Drivers
// report ends as they happen; a replay promises decisions that depend on the trace alone, so what the manager
// has been told at each of its calls has to be the same for a fast driver and a slow one. Time is the trace's
// for the same reason: policies learn from it, so a driver's clock would make decisions differ from run to
// run.

class OrderedEnds implements TransferDriver {
  readonly #driver: TransferDriver;
  /** Jobs in order of submission whose end was not handed out; those before `#next` were. */
  #order: JobId[] = [];
  #next = 0;
  readonly #ended: Map<JobId, Completion> = new Map();
  #listener: EndListener = () => {};
  #wake: () => void = () => {};
  #nowUs = 0;

  constructor(driver: TransferDriver) {
    this.#driver = driver;
    driver.onEnd((end) => {
      this.#ended.set(end.job, end);
      this.#wake();
    });
  }

  /** Arrival of the request that is served, in microseconds of the trace; it never goes back. */
  nowUs(): number {
    return this.#nowUs;
  }

  arrivedAt(us: number): void {
    this.#nowUs = Math.max(this.#nowUs, us);
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(jobs: IssuedJobs): void {
    this.#driver.submit({
      nextJob: () => {
        const job = jobs.nextJob();
        if (job !== 0) this.#order.push(job);
        return job;
      },
      transfer: (job) => jobs.transfer(job),
      route: (job, into) => jobs.route(job, into),
    });
  }

  /** Hands out the end of the oldest job, if it has ended. @returns whether it had */
  handOut(): boolean {
    const end = this.#ended.get(this.#order[this.#next]);
    if (end === undefined) return false;
    this.#ended.delete(end.job);
    if (++this.#next === this.#order.length) {
      this.#order = [];
      this.#next = 0;
    }
    this.#listener(end);
    return true;
  }

  /** Fulfilled when another job has ended. */
  arrival(): Promise<void> {
    return new Promise((wake) => {
      this.#wake = wake;
    });
  }
}

// The decision log of a replay: its text in a file where one is asked for, and in any case a digest over the
// decisions.

export class DecisionLog implements Disposable {
  readonly sink: DecisionSink;
  readonly #writer: LogWriter;
  readonly #hash: Hash = createHash('sha256');
  readonly #file: number | null;

  /** @param path where to write the log; without one only the digest is kept */
  constructor(config: ManagerConfig, path?: string) {
    const file = path === undefined ? null : openToWrite(path, 'w');
    this.#file = file;
    this.#writer = new LogWriter(config, {
      decisions: (text) => this.#hash.update(text),
      ...(file === null ? {} : { log: (text: string) => writeWhole(file, text) }),
    });
    this.sink = this.#writer;
  }

  /** sha256 over the decisions so far, in hex. */
  digest(): string {
    this.#writer.flush();
    return this.#hash.copy().digest('hex');
  }

  [Symbol.dispose](): void {
    this.#writer.end();
    if (this.#file !== null) fs.closeSync(this.#file);
  }
}
