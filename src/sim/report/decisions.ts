/**
 * The decisions of a run: counts for the summary, what went wrong, and every decision in full where a trace
 * is wanted. Regret is upstream's: the best score less the chosen one's.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { JobPriority } from '../../runtime/tables/jobTable.ts';
import { TOP, tierName } from '../../runtime/tier/tier.ts';
import type { HandoffSend } from '../cluster/handoffs.ts';
import type { SimulationObserver, StepSpan } from '../cluster/parts.ts';
import type { ReplicaChange, ScaleChange } from '../cluster/scaling.ts';
import type { AdmissionDecision, RoutingDecision } from '../control/policy.ts';
import type { BlockMove } from '../instance/engine.ts';
import type { Instance } from '../instance/instance.ts';
import type { SimRequest } from '../instance/simRequest.ts';
import { type RequestTable, Status, statusNames } from '../metrics/requestTable.ts';
import { ScaleRecords } from './scaling.ts';

export interface DecisionSummary {
  readonly admitted: number;
  readonly rejected: number;
  /** Targets by instance number. */
  readonly targets: ReadonlyMap<number, number>;
  readonly meanRegret: number;
  readonly maxRegret: number;
  readonly divergences: number;
}

/**
 * A block of KV that went from one place to another: between tiers of an instance, or with a hand-off from a prefill to a
 * decode instance.
 */
export interface KVTransferRecord {
  readonly kind: 'kv_transfer';
  /** When it was asked for. */
  readonly timeUs: number;
  readonly instance: number;
  /** Instance that a hand-off goes to. */
  readonly toInstance?: number;
  /** Id of the request that a hand-off is of. */
  readonly request?: string;
  /** The key that the block has when it is full, 32 hexadecimal digits; '' for a last block that never is. */
  readonly block: string;
  readonly fromTier: string;
  readonly toTier: string;
  readonly bytes: number;
  /** Until it had arrived, with the wait for its link. Of loads that a step pays for: what it pays. */
  readonly latencyUs: number;
  readonly reason: 'offload' | 'reload' | 'pd_handoff';
  /**
   * `evict`: it gave its room up above; `copy`: it stayed there too; `demand`: a request waited for it; `prefetch`: it came
   * before one joined a batch; `missing`: the shared tier had forgotten it; `handoff`.
   */
  readonly type: 'evict' | 'copy' | 'demand' | 'prefetch' | 'missing' | 'handoff';
}

export class Decisions implements SimulationObserver {
  readonly #records: object[] | null;
  readonly #scales: ScaleRecords = new ScaleRecords();
  #admitted = 0;
  #rejected = 0;
  #routed = 0;
  #regretSum = 0;
  #regretMax = 0;
  #divergences = 0;
  readonly #targets = new Map<number, number>();

  /** Absent where no record is kept: moves are many. */
  readonly moved?: (instance: number, move: BlockMove) => void;
  readonly handoffSent?: (sent: HandoffSend) => void;

  /** @param keeps whether each decision, and each block that went from tier to tier, is kept for a file */
  constructor(keeps: boolean) {
    this.#records = keeps ? [] : null;
    if (!keeps) return;
    this.moved = (instance, move) => this.#records?.push(tierMove(instance, move));
    this.handoffSent = (sent) => {
      for (const record of handoffMoves(sent)) this.#records?.push(record);
    };
  }

  get records(): readonly object[] {
    return this.#records ?? [];
  }

  get summary(): DecisionSummary {
    return {
      admitted: this.#admitted,
      rejected: this.#rejected,
      targets: new Map([...this.#targets].sort(([a], [b]) => a - b)),
      meanRegret: this.#routed === 0 ? 0 : this.#regretSum / this.#routed,
      maxRegret: this.#regretMax,
      divergences: this.#divergences,
    };
  }

  admission(request: SimRequest, decision: AdmissionDecision, nowUs: number): void {
    if (decision.verdict === 'admit') this.#admitted++;
    else if (decision.verdict === 'reject') this.#rejected++;
    this.#records?.push({ kind: 'admission', timeUs: nowUs, ...aboutRequest(request), ...decision });
  }

  routing(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void {
    if (decision === null) {
      this.#records?.push({ kind: 'routing', timeUs: nowUs, ...aboutRequest(request), target: null });
      return;
    }
    const { target, scores } = decision;
    this.#routed++;
    this.#targets.set(target, (this.#targets.get(target) ?? 0) + 1);
    const chosen = scores.find(({ instance }) => instance === target)?.score ?? 0;
    const best = scores.reduce((most, { score }) => Math.max(most, score), chosen);
    const regret = best - chosen;
    this.#regretSum += regret;
    this.#regretMax = Math.max(this.#regretMax, regret);
    this.#records?.push({ kind: 'routing', timeUs: nowUs, ...aboutRequest(request), ...decision, regret });
  }

  scaled(change: ScaleChange): void {
    this.#records?.push(this.#scales.scaled(change));
  }

  replica(change: ReplicaChange): void {
    this.#scales.replica(change);
    this.#records?.push({ kind: 'replica', ...change });
  }

  diverged(divergence: object): void {
    this.#divergences++;
    this.#records?.push({ kind: 'shadow_divergence', ...divergence });
  }
}

function tierMove(instance: number, move: BlockMove): KVTransferRecord {
  const { from, to, bytes, key, startUs, endUs } = move;
  return {
    kind: 'kv_transfer',
    timeUs: startUs,
    instance,
    block: blockText(key),
    fromTier: tierName(from),
    toTier: tierName(to),
    bytes,
    latencyUs: endUs - startUs,
    reason: to < from ? 'reload' : 'offload',
    type: typeOf(move),
  };
}

/** The blocks of a send: each takes as long as all of them. */
function handoffMoves({
  request,
  from,
  to,
  firstBlock,
  blocks,
  bytes,
  sentUs,
  endUs,
}: HandoffSend): object[] {
  return Array.from({ length: blocks }, (_, i): KVTransferRecord => {
    const at = 4 * (firstBlock + i);
    return {
      kind: 'kv_transfer',
      timeUs: sentUs,
      instance: from,
      toInstance: to,
      request: request.id,
      block: blockText(request.keys.words.subarray(at, at + 4)),
      fromTier: tierName(TOP),
      toTier: tierName(TOP),
      bytes: bytes / blocks,
      latencyUs: endUs - sentUs,
      reason: 'pd_handoff',
      type: 'handoff',
    };
  });
}

function blockText(key: Uint32Array): string {
  if (key.every((word) => word === 0)) return '';
  return Array.from(key, (word) => word.toString(16).padStart(8, '0')).join('');
}

function typeOf({ from, to, priority, leaves, isMissing }: BlockMove): KVTransferRecord['type'] {
  if (isMissing) return 'missing';
  if (to > from) return leaves ? 'evict' : 'copy';
  return priority === JobPriority.DEMAND_LOAD ? 'demand' : 'prefetch';
}

function aboutRequest({ id, tenantId, sloClass, promptTokens }: SimRequest): object {
  return { request: id, tenant: tenantId, sloClass, promptTokens };
}

// Counters of what went wrong. Priority inversions are counted twice: as upstream does, among requests of one
// class, and across classes, where a less urgent request joined a batch before a more urgent one that waited.

/** Counts pairs (a before b in the list) with `above(value of a) > value of b`, in O(n log n). */
function pairsAbove(values: readonly number[], factor: number): number {
  const order = [...new Set(values)].sort((a, b) => a - b);
  const tree = new Float64Array(order.length + 1);
  let added = 0;
  let pairs = 0;
  const rankOf = (value: number): number => {
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (order[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  for (const value of values) {
    // earlier ones at most `factor` times this one are no inversion
    let within = 0;
    for (let i = rankOf(factor * value); i > 0; i -= i & -i) within += tree[i];
    pairs += added - within;
    for (let i = rankOf(value); i <= order.length; i += i & -i) tree[i]++;
    added++;
  }
  return pairs;
}

/**
 * Upstream's priority inversions: pairs of one class on one instance of which the earlier took more than
 * twice as long as the later.
 */
export function priorityInversions(table: RequestTable): number {
  checkInputs({ table }, { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }) });
  const groups = new Map<string, number[]>();
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] !== Status.COMPLETED) continue;
    const key = `${table.instance[row]} ${table.originOf(row).sloClass}`;
    const rows = groups.get(key);
    if (rows === undefined) groups.set(key, [row]);
    else rows.push(row);
  }
  let pairs = 0;
  for (const rows of groups.values()) {
    rows.sort((a, b) => table.arrivalUs[a] - table.arrivalUs[b]);
    pairs += pairsAbove(
      rows.map((row) => table.e2eUs[row]),
      2,
    );
  }
  return pairs;
}

/** Instances whose queue was on average more than twice as long as the mean over all instances. */
export function headOfLineBlocking(instances: readonly Instance[]): number {
  checkInputs({ instances }, { instances: is.list(is.fields({ number: is.number(), id: is.text() })) });
  if (instances.length < 2) return 0;
  const means = instances.map(({ counters, times }) =>
    times.steps === 0 ? 0 : counters.waitingSum / times.steps,
  );
  const mean = means.reduce((sum, value) => sum + value, 0) / means.length;
  return means.filter((value) => mean > 0 && value > 2 * mean).length;
}

// A run as a Chrome trace (the Trace Event Format of about:tracing and Perfetto): a process an instance, its
// steps on one line, and each request as a span from its arrival to its end. It stops at a number of events,
// and says so in the file.

interface TraceEvent {
  readonly name: string;
  readonly ph: 'X' | 'b' | 'e' | 'M';
  readonly ts: number;
  readonly pid: number;
  readonly tid: number;
  readonly dur?: number;
  readonly cat?: string;
  readonly id?: string;
  readonly args?: Readonly<Record<string, unknown>>;
}

export class ChromeTrace implements SimulationObserver {
  readonly #most: number;
  readonly #events: TraceEvent[] = [];
  /** Events that there was no room for. */
  left = 0;

  constructor(mostEvents: number) {
    this.#most = mostEvents;
  }

  step({ instance, startUs, endUs, tokens, decodes, prefills, transferUs }: StepSpan): void {
    this.#add({
      name: prefills > 0 ? 'prefill' : 'decode',
      ph: 'X',
      ts: startUs,
      dur: endUs - startUs,
      pid: instance,
      tid: 0,
      args: { tokens, decodes, prefills, transferUs },
    });
  }

  ended(request: SimRequest, status: Status, timeUs: number, instance: number): void {
    const span = { name: request.id, cat: 'request', id: String(request.number), pid: instance, tid: 1 };
    const { promptTokens } = request;
    const outputTokens = request.workload.outputTokens;
    const args = { promptTokens, outputTokens, status: statusNames[status] };
    if (!this.#add({ ...span, ph: 'b', ts: request.arrivalUs, args })) return;
    this.#events.push({ ...span, ph: 'e', ts: timeUs });
  }

  /** The file in parts. @param ids of the instances @param provenance what the run was */
  *text(ids: readonly string[], provenance: unknown): Generator<string> {
    const names: TraceEvent[] = ids.map((name, pid) => ({
      name: 'process_name',
      ph: 'M',
      ts: 0,
      pid,
      tid: 0,
      args: { name },
    }));
    yield '{"traceEvents":[\n';
    let isFirst = true;
    for (const event of [...names, ...this.#events]) {
      yield `${isFirst ? '' : ',\n'}${JSON.stringify(event)}`;
      isFirst = false;
    }
    yield `\n],"otherData":${JSON.stringify({ provenance, eventsLeftOut: this.left })}}\n`;
  }

  #add(event: TraceEvent): boolean {
    if (this.#events.length >= this.#most) {
      this.left++;
      return false;
    }
    this.#events.push(event);
    return true;
  }
}
