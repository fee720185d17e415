/**
 * The gateway queue with bands, of the gateway API's inference extension as upstream has it. A dispatch walks
 * the bands from the most urgent on; band i of n has the ceiling 1 - i x (1 - usageLimit) / (n - 1), and the
 * first band whose ceiling the saturation has reached holds back itself and all behind it. Within a band the
 * fairness rule names the tenant, and the order the entry.
 */

import type { Priority } from '../decisions.ts';
import type { Outcome } from '../outcome.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import { AttainedService, type ServiceRules } from './attainedService.ts';
import { type Band, Bands } from './bands.ts';
import type { EnqueueResult, FlowControl, GatewayEntry } from './gateway.ts';

export const fairnessNames = ['global-strict', 'round-robin', 'program-aware'] as const;

export interface GatewayRules {
  /** 0 for no limit. */
  readonly maxDepth: number;
  readonly perBandCapacity: number;
  readonly usageLimit: number;
  readonly fairness: (typeof fairnessNames)[number];
  /** Of the fairness `program-aware`. */
  readonly service: ServiceRules;
  readonly order: 'fifo' | 'slo-deadline';
  /** Whether a full queue puts a less urgent sheddable entry out. */
  readonly sheds: boolean;
  /** By SLO class, for requests without a target of their own; µs. */
  readonly targetsUs: Readonly<Record<string, number>>;
}

export class BandedGateway implements FlowControl {
  readonly #rules: GatewayRules;
  readonly #bands: Bands = new Bands();
  readonly #byRequest = new Map<number, GatewayEntry>();
  /** Null where nobody asks for it. */
  readonly #service: AttainedService | null;
  /** Only where somebody learns from it. */
  completed?: (outcome: Outcome) => void;
  #sequence = 0;
  /** Entries of a snapshot that wait for their requests. */
  #toAdopt: readonly SavedEntry[] = [];

  constructor(rules: GatewayRules) {
    this.#rules = rules;
    const service = rules.fairness === 'program-aware' ? new AttainedService(rules.service) : null;
    if (service !== null) this.completed = (outcome) => service.completed(outcome);
    this.#service = service;
  }

  get size(): number {
    return this.#bands.size;
  }

  count(matches: (request: RequestView) => boolean): number {
    let count = 0;
    for (const { request } of this.#byRequest.values()) if (matches(request)) count++;
    return count;
  }

  enqueue(request: RequestView, priority: Priority, nowUs: number): EnqueueResult {
    const { maxDepth, perBandCapacity, sheds } = this.#rules;
    const entry: GatewayEntry = { request, priority, enqueuedUs: nowUs, sequence: this.#sequence++ };
    if (perBandCapacity > 0 && this.#bands.of(priority.score).size >= perBandCapacity) {
      return { outcome: 'rejected', reason: 'its band of the gateway queue is full' };
    }
    let evicted: GatewayEntry | undefined;
    if (maxDepth > 0 && this.size >= maxDepth) {
      evicted = sheds ? this.#bands.leastUrgentSheddable() : undefined;
      // a newcomer is never older, so of equal priorities the one that waits stays
      if (evicted === undefined || evicted.priority.score >= priority.score) {
        return { outcome: 'rejected', reason: 'the gateway queue is full' };
      }
      this.remove(evicted.request);
    }
    this.#bands.add(entry);
    this.#byRequest.set(request.number, entry);
    return evicted === undefined ? { outcome: 'queued' } : { outcome: 'evicted', evicted };
  }

  dispatch(saturation: number, nowUs: number): GatewayEntry | undefined {
    const bands = this.#bands.all;
    for (let i = 0; i < bands.length; i++) {
      const ceiling = bands.length === 1 ? 1 : 1 - (i * (1 - this.#rules.usageLimit)) / (bands.length - 1);
      if (saturation >= ceiling) return undefined;
      if (bands[i].size === 0) continue;
      const entry = this.#pick(bands[i], nowUs);
      this.remove(entry.request);
      return entry;
    }
    return undefined;
  }

  remove(request: RequestView): boolean {
    const entry = this.#byRequest.get(request.number);
    if (entry === undefined) return false;
    this.#byRequest.delete(request.number);
    this.#bands.remove(entry);
    return true;
  }

  #pick(band: Band, nowUs: number): GatewayEntry {
    const flows = [...band.flows].filter(([, flow]) => flow.length > 0);
    if (this.#rules.fairness === 'round-robin') {
      const tenants = flows.map(([tenant]) => tenant).sort();
      const tenant = tenants.find((name) => name > band.lastTenant) ?? tenants[0];
      band.lastTenant = tenant;
      return this.#first(band.flows.get(tenant) ?? []);
    }
    if (this.#service !== null) {
      return this.#service.next(
        flows.map(([, flow]) => this.#first(flow)),
        nowUs,
      );
    }
    const heads = flows.map(([, flow]) => flow[0]);
    const oldest = heads.reduce((a, b) => (a.sequence < b.sequence ? a : b));
    if (this.#rules.order === 'fifo') return oldest;
    const flow = flows.find(([, entries]) => entries[0] === oldest)?.[1] ?? [oldest];
    return this.#first(flow);
  }

  #first(flow: readonly GatewayEntry[]): GatewayEntry {
    if (this.#rules.order === 'fifo') return flow[0];
    return flow.reduce((a, b) => (this.#dueUs(b) < this.#dueUs(a) ? b : a));
  }

  #dueUs({ request, enqueuedUs }: GatewayEntry): number {
    const targetUs = request.sloTargetUs > 0 ? request.sloTargetUs : this.#rules.targetsUs[request.sloClass];
    return targetUs === undefined ? Infinity : enqueuedUs + targetUs;
  }

  snapshot(): PlainState {
    return {
      service: this.#service?.snapshot() ?? null,
      sequence: this.#sequence,
      lastTenants: this.#bands.all.map(({ score, lastTenant }) => [score, lastTenant]),
      entries: [...this.#byRequest.values()]
        .sort((a, b) => a.sequence - b.sequence)
        .map(({ request, priority, enqueuedUs, sequence }) => ({
          number: request.number,
          priority: { ...priority, hints: { ...priority.hints } },
          enqueuedUs,
          sequence,
        })),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as unknown as {
      service: PlainState;
      sequence: number;
      lastTenants: readonly [number, string][];
      entries: readonly SavedEntry[];
    };
    this.#service?.restore(saved.service);
    this.#bands.clear();
    this.#byRequest.clear();
    this.#sequence = saved.sequence;
    for (const [score, lastTenant] of saved.lastTenants) this.#bands.of(score).lastTenant = lastTenant;
    this.#toAdopt = saved.entries;
  }

  adopt(requestOf: (number: number) => RequestView): void {
    for (const { number, ...rest } of this.#toAdopt) {
      const entry: GatewayEntry = { ...rest, request: requestOf(number) };
      this.#bands.add(entry);
      this.#byRequest.set(number, entry);
    }
    this.#toAdopt = [];
  }
}

/** An entry of a snapshot, with its request by number. */
type SavedEntry = Omit<GatewayEntry, 'request'> & { readonly number: number };
