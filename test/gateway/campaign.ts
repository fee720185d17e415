/**
 * A gateway before example servers with caches of different sizes, under a workload of shared prefixes: every answer is
 * compared with what a server alone gives, hit rates with what the simulator predicts from the recorded trace, and the
 * log is decided again line for line. In the last part clients leave, a server is killed and comes back, another is
 * drained.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { PolicyBundle } from '../../src/policy/evolve/bundle/policyBundle.ts';
import { parseBundle } from '../../src/policy/evolve/bundle/readBundle.ts';
import type { GatewayConfig } from '../../src/serve/gateway/config.ts';
import { decideAgain } from '../../src/serve/gateway/decisionLog.ts';
import { Gateway } from '../../src/serve/gateway/gateway.ts';
import { compareShadows } from '../../src/serve/gateway/shadows.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import { portOfOurOwn } from '../ports.ts';
import { ServerProcess } from './live/fleet.ts';

export interface FleetOptions {
  readonly requests: number;
  readonly clients: number;
  readonly seed: number;
  /** MiB of HBM of each server; a block has 24 KiB. */
  readonly hbmMib: readonly number[];
  readonly groups: number;
  /** Starts a server that is never killed, with this number of MiB of HBM. Default: a process. */
  readonly start?: (mib: number) => Promise<FleetServer>;
  readonly say: (line: string) => void;
}

export interface FleetServer extends AsyncDisposable {
  readonly url: string;
}

export interface FleetReport {
  readonly wrong: number;
  /** Requests that ended otherwise than with an answer, and whose clients stayed. */
  readonly lost: number;
  readonly brokenStreams: number;
  readonly left: number;
  /** Of round robin and of the bundle: measured on the servers, and predicted. */
  readonly hitRates: Readonly<Record<'roundRobin' | 'prefixAware', { measured: number; predicted: number }>>;
  /** Decisions of all logs, and of these the ones that came out otherwise. */
  readonly decisions: number;
  readonly differences: number;
  readonly retries: number;
}

const BLOCK_BYTES = 24 * 1024;
const BLOCK_TOKENS = 16;
const PREFIX_TOKENS = 128;
const SUFFIX_TOKENS = 24;
const ANSWER_TOKENS = 4;
const SUFFIXES = 12;

export const roundRobin: PolicyBundle = parseBundle(
  JSON.stringify({
    name: 'round robin',
    routing: { type: 'parameterized', template: 'round-robin', parameters: {} },
  }),
);
export const prefixAware: PolicyBundle = parseBundle(
  JSON.stringify({
    name: 'prefix aware',
    routing: {
      type: 'parameterized',
      template: 'weighted',
      parameters: { scorers: { 'prefix-affinity': 3, 'active-requests': 1 } },
    },
  }),
);

interface Wanted {
  readonly prompt: readonly number[];
  answer: string;
}

/** Prompts that begin as others do: some beginnings are asked for far more often. */
function workload({ requests, seed, groups }: FleetOptions): { distinct: Wanted[]; order: number[] } {
  const random = new SeededRandom(seed);
  const tokens = (count: number): number[] => Array.from({ length: count }, () => 3 + random.below(500));
  const distinct: Wanted[] = [];
  for (let group = 0; group < groups; group++) {
    const prefix = tokens(PREFIX_TOKENS);
    for (let i = 0; i < SUFFIXES; i++)
      distinct.push({ prompt: [...prefix, ...tokens(SUFFIX_TOKENS)], answer: '' });
  }
  const order = Array.from({ length: requests }, () => {
    // the share of a group falls with its number
    const group = Math.min(random.below(groups), random.below(groups));
    return group * SUFFIXES + random.below(SUFFIXES);
  });
  return { distinct, order };
}

async function post(url: string, wanted: Wanted, stream: boolean, signal?: AbortSignal): Promise<Response> {
  return fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'tierkv-tiny',
      prompt: wanted.prompt,
      max_tokens: ANSWER_TOKENS,
      temperature: 0,
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    }),
    ...(signal === undefined ? {} : { signal }),
  });
}

/** The text of an answer, streamed or not. */
async function textOf(response: Response): Promise<string> {
  const body = await response.text();
  if (!(response.headers.get('content-type') ?? '').startsWith('text/event-stream')) {
    return (JSON.parse(body) as { choices: { text: string }[] }).choices[0].text;
  }
  const events = body.split('\n').filter((line) => line.startsWith('data: {'));
  if (!body.includes('data: [DONE]')) throw new Error('the stream has no end');
  return events
    .map((line) => (JSON.parse(line.slice(6)) as { choices: { text: string }[] }).choices[0]?.text ?? '')
    .join('');
}

/** Does all tasks, `clients` at a time. */
async function inParallel(count: number, clients: number, task: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  const client = async (): Promise<void> => {
    while (next < count) await task(next++);
  };
  await Promise.all(Array.from({ length: clients }, client));
}

interface TraceRow {
  readonly ttft_us: number;
  readonly e2e_us: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly block_keys: readonly string[];
}

function rowsOf(trace: string): TraceRow[] {
  const lines = readFileSync(trace, 'utf8').trimEnd().split('\n');
  return lines.map((line) => JSON.parse(line) as TraceRow).filter(({ cached_tokens }) => cached_tokens >= 0);
}

/** Share of the prompts' full blocks that the servers say they found. */
function found(rows: readonly TraceRow[]): number {
  const cached = rows.map(({ cached_tokens }) => cached_tokens / BLOCK_TOKENS);
  return sum(cached) / sum(rows.map(({ block_keys }) => block_keys.length));
}

/** Time of a step, whatever is in it: what the trace shows between the tokens of an answer. */
function stepUsOf(trace: string): number {
  const gaps = rowsOf(trace)
    .filter(({ ttft_us, e2e_us, output_tokens }) => output_tokens > 1 && e2e_us - ttft_us > 1000)
    .map(({ ttft_us, e2e_us, output_tokens }) => (e2e_us - ttft_us) / (output_tokens - 1))
    .sort((a, b) => a - b);
  return Math.round(gaps[Math.floor(gaps.length / 2)]);
}

/** A deployment file of the same servers, for the simulator. */
function deploymentOf(folder: string, { hbmMib }: FleetOptions, stepUs: number): string {
  const coefficients = join(folder, 'coefficients.yaml');
  const terms = `alpha: {alpha0: 0, alpha1: 0, alpha2: 0}\nbeta: {step: ${stepUs}}`;
  writeFileSync(coefficients, `schema: tierkv.latency/1\nbackend: linear\n${terms}\n`);
  const pools = hbmMib.map((mib, i) =>
    [
      `  - name: p${i}`,
      '    replicas: 1',
      '    engine:',
      `      total_kv_blocks: ${Math.floor((mib * 2 ** 20) / BLOCK_BYTES)}`,
      '      max_num_seqs: 32',
      '      block_size_in_tokens: 16',
    ].join('\n'),
  );
  const file = join(folder, 'deployment.yaml');
  writeFileSync(
    file,
    [
      'version: 1',
      'models:',
      `  - {name: llama-3.1-8b-instruct, hardware: H100, latency_model: linear, coefficients: ${coefficients}}`,
      'pools:',
      ...pools,
      'control:',
      '  signals: {snapshot_interval_us: 0, cache_signal_us: 0}',
      '',
    ].join('\n'),
  );
  return file;
}

export async function fleetRun(options: FleetOptions): Promise<FleetReport> {
  const { hbmMib, clients, requests, say, start = (mib: number) => ServerProcess.start(mib) } = options;
  const folder = mkdtempSync(join(tmpdir(), 'tierkv-fleet-'));
  const { distinct, order } = workload(options);
  const totals = { wrong: 0, lost: 0, brokenStreams: 0, left: 0, decisions: 0, differences: 0, retries: 0 };
  try {
    {
      await using alone = await start(64);
      const asked = [...new Set(order)];
      await inParallel(asked.length, 16, async (i) => {
        const wanted = distinct[asked[i]];
        wanted.answer = await textOf(await post(alone.url, wanted, false));
      });
      say(`${asked.length} answers of a server alone`);
    }
    const check = async (log: string): Promise<void> => {
      const { decisions, differences, isCut } = await decideAgain(log);
      totals.decisions += decisions;
      totals.differences += differences.length + Number(isCut);
    };
    const measured = async (bundle: PolicyBundle, name: string): Promise<number> => {
      await using fleet = await startFleet(hbmMib, start);
      const log = join(folder, `${name}.log`);
      {
        await using gateway = await gatewayOf(fleet.servers, bundle, log, {
          trace: join(folder, `${name}.trace`),
          shadows: bundle === roundRobin ? [{ name: 'prefix aware', bundle: prefixAware }] : [],
        });
        await inParallel(requests, clients, async (i) => {
          const wanted = distinct[order[i]];
          const response = await post(gateway.url, wanted, i % 4 === 0);
          if (response.status !== 200) totals.lost++;
          else if ((await textOf(response)) !== wanted.answer) totals.wrong++;
        });
        totals.retries += gateway.counts.retries;
      }
      await check(log);
      const rate = found(rowsOf(join(folder, `${name}.trace`)));
      say(`${name}: hit rate ${(100 * rate).toFixed(1)} %`);
      return rate;
    };
    const rates = {
      roundRobin: await measured(roundRobin, 'rr'),
      prefixAware: await measured(prefixAware, 'prefix'),
    };
    // one goes round: what was observed under round robin says what the other would give
    const trial = {
      trace: join(folder, 'rr.trace'),
      deployment: deploymentOf(folder, options, stepUsOf(join(folder, 'rr.trace'))),
    };
    const { policies } = await compareShadows(join(folder, 'rr.log'), trial);
    const [roundRobinRate = 0, prefixAwareRate = 0] = policies.map(({ prefixHitRate }) => prefixHitRate);
    const foreseen = { roundRobin: roundRobinRate, prefixAware: prefixAwareRate };
    const { otherTargets = 0, routes = 0 } = policies[1].tally ?? {};
    say(`beside round robin the bundle chose another backend for ${otherTargets} of ${routes} requests`);
    say(
      `predicted: ${(100 * foreseen.roundRobin).toFixed(1)} % and ${(100 * foreseen.prefixAware).toFixed(1)} %`,
    );
    const log = join(folder, 'trouble.log');
    await trouble(options, distinct, order, log, totals);
    await check(log);
    return {
      ...totals,
      hitRates: {
        roundRobin: { measured: rates.roundRobin, predicted: foreseen.roundRobin },
        prefixAware: { measured: rates.prefixAware, predicted: foreseen.prefixAware },
      },
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Clients leave, a server is killed and comes back, another is drained; with at least three servers. */
async function trouble(
  { hbmMib, clients, requests, seed, say, start = (mib) => ServerProcess.start(mib) }: FleetOptions,
  distinct: readonly Wanted[],
  order: readonly number[],
  log: string,
  totals: { wrong: number; lost: number; brokenStreams: number; left: number; retries: number },
): Promise<void> {
  const random = new SeededRandom(seed + 1);
  // the second is killed, so of three at least one is left
  const port = await portOfOurOwn();
  let killed = await ServerProcess.start(hbmMib[1], port);
  await using fleet = await startFleet(hbmMib, async (mib, i) => (i === 1 ? killed : start(mib)));
  await using gateway = await gatewayOf(fleet.servers, prefixAware, log);
  const admin = async (what: string, id: string): Promise<void> => {
    const headers = { authorization: 'Bearer admin' };
    const { status } = await fetch(`${gateway.operatorUrl}/gateway/backends/${id}/${what}`, {
      method: 'POST',
      headers,
    });
    if (status !== 200) throw new Error(`${what} of ${id} gives ${status}`);
  };
  const drained = `b${hbmMib.length - 1}`;
  let returning: Promise<void> | undefined;
  await inParallel(requests, clients, async (i) => {
    if (i === Math.floor(requests / 4)) {
      await killed.kill();
      returning = ServerProcess.start(hbmMib[1], port).then((again) => {
        killed = again;
        fleet.servers.splice(1, 1, again);
      });
    }
    if (i === Math.floor(requests / 2)) await admin('drain', drained);
    if (i === Math.floor((3 * requests) / 4)) await admin('resume', drained);
    const wanted = distinct[order[i]];
    const streams = i % 4 === 0;
    const leaving = new AbortController();
    const leaves = random.below(10) === 0;
    if (leaves) setTimeout(() => leaving.abort(), random.below(60));
    try {
      const response = await post(gateway.url, wanted, streams, leaving.signal);
      if (response.status !== 200) {
        totals.lost++;
        say(`lost: ${response.status} ${(await response.text()).slice(0, 200)}`);
      } else if ((await textOf(response)) !== wanted.answer) totals.wrong++;
    } catch (error) {
      if (leaving.signal.aborted) totals.left++;
      else if (streams) totals.brokenStreams++;
      else {
        totals.lost++;
        say(`lost: ${String(error)}`);
      }
    }
  });
  await returning;
  for (let turn = 0; gateway.openRequests > 0; turn++) {
    if (turn > 12_000) throw new Error(`${gateway.openRequests} requests never end`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  totals.retries += gateway.counts.retries;
}

async function startFleet<Server extends FleetServer>(
  hbmMib: readonly number[],
  start: (mib: number, index: number) => Promise<Server>,
): Promise<{ servers: Server[] } & AsyncDisposable> {
  const servers = await Promise.all(hbmMib.map(start));
  return {
    servers,
    [Symbol.asyncDispose]: async () => {
      await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
    },
  };
}

async function gatewayOf(
  servers: readonly FleetServer[],
  policy: PolicyBundle,
  log: string,
  more: Partial<GatewayConfig> = {},
): Promise<Gateway> {
  return Gateway.open({
    backends: servers.map(({ url }, i) => ({ url, id: `b${i}` })),
    policy,
    port: 0,
    pollMs: 100,
    adminKey: 'admin',
    log,
    ...more,
    limits: { graceMs: 5000 },
  });
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
