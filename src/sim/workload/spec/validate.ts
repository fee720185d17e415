/**
 * What must hold between the parts of a spec: one source of traffic, a rate for everybody who needs one,
 * service classes for all or for none. Checks of single values are the reader's.
 */

import type { TierKVError } from '../../../runtime/errors.ts';
import type { WorkloadSpec } from './types.ts';

type Fail = (field: string, problem: string, remedy: string) => TierKVError;

export function checkSpec(spec: WorkloadSpec, fail: Fail): void {
  checkSources(spec, fail);
  checkRates(spec, fail);
  checkClasses(spec, fail);
  checkLoops(spec, fail);
  checkAdditions(spec, fail);
}

/** Windows with parameters of their own are drawn as a whole, where behaviour and prefixes have no place. */
function checkAdditions(spec: WorkloadSpec, fail: Fail): void {
  const drawnWhole =
    spec.clients.some(({ windows }) =>
      windows.some(
        ({ traceRate, arrival, inputLength, outputLength }) =>
          traceRate !== undefined ||
          arrival !== undefined ||
          inputLength !== undefined ||
          outputLength !== undefined,
      ),
    ) || spec.cohorts.some(({ spike }) => spike?.traceRate !== undefined);
  const added = [...spec.clients, ...spec.cohorts].find(
    ({ walk, behavior, prefixes, correlation }) => walk ?? behavior ?? prefixes ?? correlation,
  );
  if (!drawnWhole || added === undefined) return;
  throw fail(
    'clients',
    'have windows with parameters of their own beside session, behavior, prefixes or correlation ' +
      `("${added.id}")`,
    'Put them into two specs',
  );
}

function checkSources(spec: WorkloadSpec, fail: Fail): void {
  const sources = [
    spec.clients.length > 0 || spec.cohorts.length > 0 ? 'clients' : '',
    spec.servegen === undefined ? '' : 'servegen_data',
    spec.inferencePerf === undefined ? '' : 'inference_perf',
  ].filter((name) => name !== '');
  if (sources.length === 0)
    throw fail('clients', 'is empty', 'Give a client, a cohort, inference_perf or servegen_data');
  if (
    sources.length > 1 &&
    !(sources.length === 2 && spec.clients.length === 0 && spec.inferencePerf !== undefined)
  ) {
    throw fail(sources[1], `excludes ${sources[0]}`, 'Keep one of them');
  }
}

function checkRates(spec: WorkloadSpec, fail: Fail): void {
  if (spec.aggregateRate > 0 || spec.inferencePerf !== undefined || spec.servegen !== undefined) return;
  spec.clients.forEach((client, i) => {
    if (client.concurrency > 0) return;
    const silent = client.windows.findIndex((window) => window.traceRate === undefined);
    if (client.windows.length > 0 && silent < 0) return;
    const where =
      client.windows.length === 0 ? `clients[${i}]` : `clients[${i}].lifecycle.windows[${silent}]`;
    throw fail(
      'aggregate_rate',
      `is 0 and ${where} has no trace_rate`,
      'Set aggregate_rate above 0, or a trace_rate in every window',
    );
  });
  spec.cohorts.forEach((cohort, i) => {
    if (cohort.spike?.traceRate !== undefined && cohort.diurnal === undefined && cohort.drain === undefined)
      return;
    throw fail(
      'aggregate_rate',
      `is 0 and cohorts[${i}] is more than a spike with trace_rate`,
      'Set aggregate_rate above 0, or give the cohort one spike with trace_rate',
    );
  });
}

function checkClasses(spec: WorkloadSpec, fail: Fail): void {
  const named = [
    ...spec.clients.map((client, i) => [`clients[${i}]`, client.sloClass] as const),
    ...spec.cohorts.map((cohort, i) => [`cohorts[${i}]`, cohort.sloClass] as const),
  ];
  const without = named.find(([, sloClass]) => sloClass === '');
  const withClass = named.find(([, sloClass]) => sloClass !== '');
  if (without === undefined || withClass === undefined) return;
  throw fail(
    `${without[0].split('[')[0]}`,
    `mixes: ${without[0]} has no slo_class but ${withClass[0]} has one`,
    'Set slo_class everywhere or nowhere',
  );
}

function checkLoops(spec: WorkloadSpec, fail: Fail): void {
  const concurrent = spec.clients.findIndex((client) => client.concurrency > 0);
  const turns = [...spec.clients, ...spec.cohorts].find((one) => one.reasoning?.multiTurn !== undefined);
  if (concurrent < 0 || turns === undefined) return;
  throw fail(
    'clients',
    `mixes concurrency (clients[${concurrent}]) with multi-turn ("${turns.id}")`,
    'Put them into two specs',
  );
}
