/** The gateway: a queue in front of routing that holds requests while the instances are saturated. */

import type { Stateful, StateVisitor } from '../../runtime/snapshot.ts';
import * as elementary from '../random/elementary.ts';
import {
  concurrencyKindOf,
  concurrencyKinds,
  concurrencySaturation,
  utilizationSaturation,
} from './admission.ts';
import {
  type ClusterState,
  type NamedPolicy,
  ownNumber,
  type RequestOutcome,
  type RequestPriority,
  type RequestView,
} from './policy.ts';
import { type NumberRule, Registry } from './registry.ts';

//  llm-d's program-aware fairness by least attained service; a program is a tenant here.

interface ServiceRules {
  readonly serviceWeight: number;
  readonly waitWeight: number;
  readonly halfLifeUs: number;
}

/** Cost of an output token in prompt tokens. */
const OUTPUT_WEIGHT = 2;

/**
 * The flow with the highest serviceWeight x (1 - s) + waitWeight x w is served: s is the attained service of
 * its tenant and w the wait of its first entry, both scaled to 0 to 1 over the flows of the band, and 0 where
 * all are alike; of equal ones that whose first entry came first. A completed request adds its prompt tokens
 * and twice its output tokens; what was attained halves in each half-life of simulated time. (llm-d-router,
 * `program-aware-fairness` with the strategy `las`.)
 */
class AttainedService implements Stateful {
  readonly #rules: ServiceRules;
  readonly #byTenant = new Map<string, { tokens: number; atUs: number }>();

  constructor(rules: ServiceRules) {
    this.#rules = rules;
  }

  /** In weighted tokens. */
  of(tenant: string, nowUs: number): number {
    const attained = this.#byTenant.get(tenant);
    if (attained === undefined) return 0;
    return attained.tokens * elementary.pow(0.5, (nowUs - attained.atUs) / this.#rules.halfLifeUs);
  }

  completed({ request, completed, outputTokens, nowUs }: RequestOutcome): void {
    if (!completed) return;
    const tenant = flowOf(request);
    const tokens = this.of(tenant, nowUs) + request.promptTokens + OUTPUT_WEIGHT * outputTokens;
    this.#byTenant.set(tenant, { tokens, atUs: nowUs });
  }

  /** @param heads the first entry of each flow of a band, at least one */
  next(heads: readonly GatewayEntry[], nowUs: number): GatewayEntry {
    const { serviceWeight, waitWeight } = this.#rules;
    const services = heads.map(({ request }) => this.of(flowOf(request), nowUs));
    const waits = heads.map(({ enqueuedUs }) => nowUs - enqueuedUs);
    const service = scaled(services);
    const wait = scaled(waits);
    const score = (i: number): number =>
      serviceWeight * (1 - service(services[i])) + waitWeight * wait(waits[i]);
    let best = 0;
    for (let i = 1; i < heads.length; i++) {
      const ahead = score(i) - score(best);
      if (ahead > 0 || (ahead === 0 && heads[i].sequence < heads[best].sequence)) best = i;
    }
    return heads[best];
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#byTenant].map(([tenant, service]) => ({ tenant, service: { ...service } })),
      (saved) => {
        this.#byTenant.clear();
        for (const { tenant, service } of saved) this.#byTenant.set(tenant, { ...service });
      },
    );
  }
}

function scaled(values: readonly number[]): (value: number) => number {
  const low = Math.min(...values);
  const high = Math.max(...values);
  return (value) => (high === low ? 0 : (value - low) / (high - low));
}

// The gateway queue with bands, of the gateway API's inference extension as upstream has it. A dispatch walks
// the bands from the most urgent on; band i of n has the ceiling 1 - i x (1 - usageLimit) / (n - 1), and the
// first band whose ceiling the saturation has reached holds back itself and all behind it. Within a band the
// fairness rule names the tenant, and the order the entry.

const fairnessNames = ['global-strict', 'round-robin', 'program-aware'] as const;

interface GatewayRules {
  /** 0 for no limit. */
  readonly maxDepth: number;
  readonly perBandCapacity: number;
  readonly usageLimit: number;
  readonly fairness: (typeof fairnessNames)[number];
  /** Rules of the fairness `program-aware`. */
  readonly service: ServiceRules;
  readonly order: 'fifo' | 'slo-deadline';
  /** Whether a full queue puts a less urgent sheddable entry out. */
  readonly sheds: boolean;
  /** Targets by SLO class, for requests without a target of their own; µs. */
  readonly targetsUs: Readonly<Record<string, number>>;
}

class BandedGateway implements FlowControl {
  readonly #rules: GatewayRules;
  readonly #bands: Bands = new Bands();
  readonly #byRequest = new Map<number, GatewayEntry>();
  /** Null unless the fairness rule reads it. */
  readonly #service: AttainedService | null;
  /** Left out where no rule learns from outcomes. */
  completed?: (outcome: RequestOutcome) => void;
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

  enqueue(request: RequestView, priority: RequestPriority, nowUs: number): EnqueueResult {
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
    const { sloTargetUs, sloClass } = request;
    const targetUs = sloTargetUs > 0 ? sloTargetUs : (ownNumber(this.#rules.targetsUs, sloClass) ?? Infinity);
    return enqueuedUs + targetUs;
  }

  visitState(visitor: StateVisitor): void {
    this.#service?.visitState(visitor);
    this.#sequence = visitor.number(this.#sequence);
    visitor.value<readonly (readonly [number, string])[]>(
      () => this.#bands.all.map(({ score, lastTenant }) => [score, lastTenant]),
      (saved) => {
        this.#bands.clear();
        for (const [score, lastTenant] of saved) this.#bands.of(score).lastTenant = lastTenant;
      },
    );
    visitor.value<readonly SavedEntry[]>(
      () =>
        [...this.#byRequest.values()]
          .sort((a, b) => a.sequence - b.sequence)
          .map(({ request, priority, enqueuedUs, sequence }) => ({
            number: request.number,
            priority: { ...priority, hints: { ...priority.hints } },
            enqueuedUs,
            sequence,
          })),
      (saved) => {
        this.#byRequest.clear();
        this.#toAdopt = saved;
      },
    );
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

// Entries of a gateway queue: bands by priority, in each a first-in-first-out flow for each tenant. Bands
// exist from their first entry on, the most urgent first.

/** A band: its flows by tenant, and the tenant that was served last. */
interface Band {
  readonly score: number;
  readonly flows: Map<string, GatewayEntry[]>;
  size: number;
  lastTenant: string;
}

class Bands {
  readonly #bands: Band[] = [];
  size = 0;

  get all(): readonly Band[] {
    return this.#bands;
  }

  of(score: number): Band {
    let place = 0;
    while (place < this.#bands.length && this.#bands[place].score > score) place++;
    if (this.#bands[place]?.score === score) return this.#bands[place];
    const band: Band = { score, flows: new Map(), size: 0, lastTenant: '' };
    this.#bands.splice(place, 0, band);
    return band;
  }

  add(entry: GatewayEntry): void {
    const band = this.of(entry.priority.score);
    const tenant = flowOf(entry.request);
    const flow = band.flows.get(tenant);
    if (flow === undefined) band.flows.set(tenant, [entry]);
    else flow.push(entry);
    band.size++;
    this.size++;
  }

  remove(entry: GatewayEntry): void {
    const band = this.of(entry.priority.score);
    const flow = band.flows.get(flowOf(entry.request)) ?? [];
    const at = flow.indexOf(entry);
    if (at === -1) return;
    flow.splice(at, 1);
    band.size--;
    this.size--;
  }

  /** The sheddable entry of the least urgent band that has one, the newest of those. */
  leastUrgentSheddable(): GatewayEntry | undefined {
    for (let place = this.#bands.length - 1; place >= 0; place--) {
      let newest: GatewayEntry | undefined;
      for (const flow of this.#bands[place].flows.values()) {
        for (const entry of flow) {
          if (!entry.priority.hints.sheddable) continue;
          if (newest === undefined || entry.sequence > newest.sequence) newest = entry;
        }
      }
      if (newest !== undefined) return newest;
    }
    return undefined;
  }

  clear(): void {
    this.#bands.length = 0;
    this.size = 0;
  }
}

/** Whose flow a request is in: its tenant's; requests without one share a flow. */
function flowOf({ tenantId }: RequestView): string {
  return tenantId === '' ? 'default' : tenantId;
}

//  A queue in front of routing that holds requests while the instances are saturated.

export interface GatewayEntry {
  readonly request: RequestView;
  readonly priority: RequestPriority;
  readonly enqueuedUs: number;
  /** Order of arrival at the queue. */
  readonly sequence: number;
}

type EnqueueResult =
  | { readonly outcome: 'queued' }
  | { readonly outcome: 'rejected'; readonly reason: string }
  /** Another one was put out to make room. */
  | { readonly outcome: 'evicted'; readonly evicted: GatewayEntry };

export interface FlowControl extends Stateful, Pick<NamedPolicy, 'completed'> {
  readonly size: number;
  /** How many waiting requests match. */
  count(matches: (request: RequestView) => boolean): number;
  enqueue(request: RequestView, priority: RequestPriority, nowUs: number): EnqueueResult;
  /**
   * The next request to route, or undefined while everything is held back.
   * @param saturation of the instances, from 0; 1 is full
   */
  dispatch(saturation: number, nowUs: number): GatewayEntry | undefined;
  /**
   * After its state is restored: gives the entries their requests back by their numbers. A snapshot holds no requests,
   * which belong to the simulation.
   */
  adopt(requestOf: (number: number) => RequestView): void;
  /** Takes a request out, because it expired or its client gave up; false when it is not here. */
  remove(request: RequestView): boolean;
}

//  Gateway queues by name, and the detectors of saturation that they dispatch by.

const limit: NumberRule = { kind: 'number', default: 0, min: 0, integer: true };

/** A gateway, and how it sees saturation. */
export interface GatewayStage {
  readonly queue: FlowControl;
  saturation(cluster: ClusterState): number;
}

export const gateways: Registry<GatewayStage> = new Registry<GatewayStage>('gateway', [
  {
    name: 'banded',
    readsKeys: false,
    readsReports: (p) => p.text('detector') === 'utilization',
    about: 'bands by priority, flows by tenant',
    parameters: {
      detector: { kind: 'choice', default: 'never', names: ['never', 'utilization', 'concurrency'] },
      queueThreshold: { kind: 'number', default: 5, above: 0 },
      kvThreshold: { kind: 'number', default: 0.8, above: 0, max: 1 },
      concurrencyKind: { kind: 'choice', default: 'requests', names: concurrencyKinds },
      maxConcurrency: { kind: 'number', default: 100, min: 1, integer: true },
      maxTokenConcurrency: { kind: 'number', default: 1_000_000, min: 1, integer: true },
      /** `priority` and `fifo` differ in nothing, since bands are walked by priority. */
      order: { kind: 'choice', default: 'fifo', names: ['fifo', 'priority', 'slo-deadline'] },
      fairness: { kind: 'choice', default: 'global-strict', names: fairnessNames },
      serviceWeight: { kind: 'number', default: 0.8, min: 0, with: ['fairness'] },
      waitWeight: { kind: 'number', default: 0.2, min: 0, with: ['fairness'] },
      halfLifeUs: { kind: 'number', default: 60_000_000, above: 0, with: ['fairness'] },
      maxDepth: limit,
      perBandCapacity: limit,
      usageLimit: { kind: 'number', default: 1, above: 0, max: 1 },
      shedding: { kind: 'flag', default: false },
      targetsUs: { kind: 'numbers', default: {}, each: { kind: 'number', default: 0, above: 0 } },
    },
    make: (p) => {
      const detector = p.text('detector');
      const caps = {
        kind: concurrencyKindOf(p.text('concurrencyKind')) ?? 'requests',
        requests: p.number('maxConcurrency'),
        tokens: p.number('maxTokenConcurrency'),
      };
      return {
        queue: new BandedGateway({
          maxDepth: p.number('maxDepth'),
          perBandCapacity: p.number('perBandCapacity'),
          usageLimit: p.number('usageLimit'),
          fairness: fairnessNames.find((name) => name === p.text('fairness')) ?? 'global-strict',
          service: {
            serviceWeight: p.number('serviceWeight'),
            waitWeight: p.number('waitWeight'),
            halfLifeUs: p.number('halfLifeUs'),
          },
          order: p.text('order') === 'slo-deadline' ? 'slo-deadline' : 'fifo',
          sheds: p.flag('shedding'),
          targetsUs: p.numbers('targetsUs'),
        }),
        saturation: (cluster) => {
          if (detector === 'never') return 0;
          if (detector === 'concurrency') return concurrencySaturation(cluster, caps);
          return utilizationSaturation(cluster, p.number('queueThreshold'), p.number('kvThreshold'));
        },
      };
    },
  },
]);
