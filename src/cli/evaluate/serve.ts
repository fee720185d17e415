/** A candidate as a framework leaves it in a file. */

import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { readText } from '../../io/files/inputs.ts';
import type { PoolLimits, TaskRunner } from '../../io/workerPool.ts';
import { SimulationEvaluator } from '../../policy/evaluate/evaluator.ts';
import { openPolicy } from '../../policy/evaluate/openPolicy.ts';
import { loadPlan } from '../../policy/evaluate/plans.ts';
import { serveHttp, serveLines } from '../../policy/evaluate/transports.ts';
import { EvaluationService, type ServiceAnswer, type ServiceOptions } from '../../policy/evolve/serve.ts';
import { defaultSummary } from '../../policy/evolve/summary.ts';
import { openRunner } from '../../policy/workers/openRunner.ts';
import type { Tasks } from '../../policy/workers/thread.ts';
import { parseJson } from '../../runtime/boundedJson.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';

/**
 * Parameters of `evaluate`: a bundle, or the text of one slot on top of the baseline. A file of any name but
 * `.wasm` and `.js` is a text: the JSON of a bundle or of a policy, or a Starlark program.
 * @throws TKV_IO where it cannot be read
 */
function candidateOf(file: string, slot: string): object {
  const extension = path.extname(file);
  if (extension === '' || extension === '.wasm' || extension === '.js') {
    return { bundle: openPolicy(file, slot) };
  }
  const text = readText(file);
  return bundleOf(text) ?? { candidate: { [slot]: text } };
}

/** The bundle of a JSON text; undefined for a policy of one slot, and for other texts. */
function bundleOf(text: string): object | undefined {
  let value: unknown;
  try {
    value = parseJson(text, (problem) => new TierKVError('TKV_INPUT', problem));
  } catch {
    return undefined;
  }
  return typeof value === 'object' && value !== null && !('type' in value) ? { bundle: value } : undefined;
}

//  `tierkv evaluate --serve`: the evaluator as a process that frameworks talk to.

interface ServeOptions {
  /** Name or file of the plan. */
  readonly plan: string;
  /** Threads, time and heap of one simulation. */
  readonly limits: PoolLimits;
  /** Address of the server whose workers run the cases; undefined for threads of this process. */
  readonly server: string | undefined;
  readonly cacheFolder?: string;
  /** Over HTTP where given, 0 for any free port; else lines on stdio. */
  readonly http?: { readonly host: string; readonly port: number };
  /** Routing decisions of a candidate's worst case that are tried otherwise, for the summary. */
  readonly regrets: number;
}

/** Simulations at their limit, one after the other: as long as these a candidate may take. */
const CASES_IN_TURN = 4;

/** A summary of the case with the lowest score: what went wrong there, and why. */
function artifactsOf(
  evaluator: SimulationEvaluator,
  regrets: number,
): NonNullable<ServiceOptions['artifactsOf']> {
  return async (bundle, { cases = [], error }, suite) => {
    if (error !== undefined || cases.length === 0) return {};
    const worst = cases.reduce((a, b) => (b.score < a.score ? b : a));
    const explain = { summary: defaultSummary, regrets, level: 'minimal' } as const;
    const told = await evaluator.explain(bundle, suite, worst.id, explain);
    const summary = 'error' in told ? `The summary failed: ${told.error.message}` : told.explanation.summary;
    return { trace_summary: summary };
  };
}

async function open({ plan, limits, server, cacheFolder, regrets }: ServeOptions): Promise<{
  runner: TaskRunner<Tasks>;
  service: EvaluationService;
}> {
  const say = (line: string): void => void process.stderr.write(`tierkv: ${line}\n`);
  const runner = await openRunner(server, limits, say);
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(plan),
    limits,
    runner,
    say,
    ...(cacheFolder === undefined ? {} : { cacheFolder }),
  });
  const service = new EvaluationService({
    evaluator,
    // its cases follow each other on the threads
    wallMs: limits.wallMs * CASES_IN_TURN,
    artifactsOf: artifactsOf(evaluator, regrets),
  });
  return { runner, service };
}

/** Ends with the input, `shutdown`, or the signal. */
export async function serve(options: ServeOptions, signal: AbortSignal): Promise<void> {
  const { runner, service } = await open(options);
  try {
    const { http } = options;
    if (http === undefined) await serveLines(service, process.stdin, process.stdout, signal);
    else await overHttp(service, http, signal);
  } finally {
    await runner.close();
  }
}

/**
 * Answers for one candidate as SkyDiscover reads it, whatever becomes of the candidate.
 * @throws TKV_CONFIG where not one candidate is named
 */
export async function answerOnce(
  options: ServeOptions,
  policies: readonly string[],
  slot: string,
  suite: string,
): Promise<Pick<ServiceAnswer, 'status' | 'combined_score' | 'metrics' | 'artifacts'>> {
  if (policies.length !== 1) {
    throw configError('policy', `is named ${policies.length} times`, 'Name the file of one candidate.');
  }
  const { runner, service } = await open(options);
  try {
    const response = await service.handle({
      id: 1,
      method: 'evaluate',
      params: { ...candidateOf(policies[0], slot), suite: suite === 'test' ? 'validation' : suite },
    });
    if ('error' in response) throw configError('policy', response.error.message, 'See the message.');
    // `evaluate` is answered so
    const { status, combined_score, metrics, artifacts } = response.result as ServiceAnswer;
    return { status, combined_score, metrics, artifacts };
  } finally {
    await runner.close();
  }
}

async function overHttp(
  service: EvaluationService,
  { host, port }: { readonly host: string; readonly port: number },
  signal: AbortSignal,
): Promise<void> {
  const stop = new AbortController();
  const server = await serveHttp(service, host, port, () => stop.abort());
  const { port: bound } = server.address() as AddressInfo;
  process.stderr.write(`listening on http://${host}:${bound}\n`);
  const ended = AbortSignal.any([signal, stop.signal]);
  await new Promise<void>((resolve) => {
    if (ended.aborted) resolve();
    ended.addEventListener('abort', () => resolve(), { once: true });
  });
  service.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
