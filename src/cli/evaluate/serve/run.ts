/** `tierkv evaluate --serve`: the evaluator as a process that frameworks talk to. */

import type { AddressInfo } from 'node:net';
import { EvaluationService, type ServiceOptions } from '../../../evolve/serve/index.ts';
import { loadPlan } from '../plans.ts';
import type { PoolLimits } from '../pool.ts';
import { SimulationEvaluator } from '../simulationEvaluator.ts';
import { serveHttp } from './http.ts';
import { serveLines } from './stdio.ts';

export interface ServeOptions {
  /** Name or file of the plan. */
  readonly plan: string;
  /** Threads, time and heap of one simulation. */
  readonly limits: PoolLimits;
  readonly cacheFolder?: string;
  /** Over HTTP where given, 0 for any free port; else lines on stdio. */
  readonly http?: { readonly host: string; readonly port: number };
  readonly artifactsOf?: ServiceOptions['artifactsOf'];
}

/** Ends with the input, `shutdown`, or the signal. */
export async function serve(options: ServeOptions, signal: AbortSignal): Promise<void> {
  const { plan, limits, cacheFolder, http, artifactsOf } = options;
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(plan),
    limits,
    ...(cacheFolder === undefined ? {} : { cacheFolder }),
  });
  const service = new EvaluationService({
    evaluator,
    // cases follow each other on the threads
    wallMs: limits.wallMs * 4,
    ...(artifactsOf === undefined ? {} : { artifactsOf }),
  });
  try {
    if (http === undefined) await serveLines(service, process.stdin, process.stdout, signal);
    else await overHttp(service, http, signal);
  } finally {
    await evaluator.close();
  }
}

async function overHttp(
  service: EvaluationService,
  { host, port }: { readonly host: string; readonly port: number },
  signal: AbortSignal,
): Promise<void> {
  const server = await serveHttp(service, host, port);
  const { port: bound } = server.address() as AddressInfo;
  process.stderr.write(`listening on http://${host}:${bound}\n`);
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  service.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
