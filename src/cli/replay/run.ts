/** The run behind `tierkv replay`: survey the trace, open the stores, serve every request, report. */

import { createHash } from 'node:crypto';
import {
  type Counters,
  defaultEviction,
  KVManager,
  LogReader,
  LogReplayer,
  type ManagerConfig,
  Tier,
} from '../../runtime/index.ts';
import { readMooncakeTrace } from '../trace/index.ts';
import { readLines } from '../trace/lines.ts';
import { DecisionLog } from './decisionLog.ts';
import type { DriverName, ReplayListener, ReplayOptions } from './options.ts';
import type { ReplayReport } from './report/index.ts';
import { ReplaySession } from './session.ts';
import { surveyTrace, traceOptions } from './survey.ts';
import { type OpenTiers, type ReplayTiers, replaySizes } from './tiers/index.ts';
import { openTiers as openModeledTiers } from './tiers/modeled.ts';

/** @throws {TierKVError} for a bad trace, a device or a directory that cannot be used */
export async function runReplay(options: ReplayOptions, listener: ReplayListener): Promise<ReplayReport> {
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
    hbmBlocks: sizes.hbmBlocks,
    window: sizes.window,
  });

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
    hits.update(`${await session.request(request.hashIds, 1000 * request.timestampMs)}\n`);
    requests++;
    blocks += request.hashIds.length;
    listener.progress({
      requests,
      blocks,
      blocksTotal: survey.blockLookups,
      bytesMoved: tiers.bytesMoved(),
    });
  }
  return {
    ...figures(manager.counters, tiers, sizes.config),
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

/** Only a real run loads the GPU's binding. */
function tiersFor(driver: DriverName): Promise<{ openTiers: OpenTiers }> {
  return driver === 'real' ? import('./tiers/real.ts') : import('./tiers/modeled.ts');
}

async function replayInputs(
  options: ReplayOptions,
  path: string,
  listener: ReplayListener,
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
    ...figures(manager.counters, tiers, lines.config),
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
  counters: Readonly<Counters>,
  tiers: ReplayTiers,
  config: ManagerConfig,
): Pick<ReplayReport, 'hits' | 'demotions' | 'bytesMoved' | 'gbps' | 'adapter' | 'tiers' | 'policy'> {
  const order: Tier[] = [Tier.HBM, ...(config.ddr ? [Tier.DDR] : []), ...(config.nvme ? [Tier.NVME] : [])];
  const at = (values: Float64Array, tier: Tier): number => {
    const position = order.indexOf(tier);
    return position === -1 ? 0 : values[position];
  };
  return {
    hits: {
      hbm: at(counters.hits, Tier.HBM),
      ddr: at(counters.hits, Tier.DDR),
      nvme: at(counters.hits, Tier.NVME),
    },
    demotions: {
      hbmToDdr: config.ddr ? at(counters.demotions, Tier.HBM) : 0,
      ddrToNvme: at(counters.demotions, Tier.DDR),
      dropped: counters.dropped,
    },
    ...tiers.traffic(),
    policy: (config.eviction ?? defaultEviction).policy,
    adapter: tiers.adapter,
    tiers: tiers.describe(),
  };
}
