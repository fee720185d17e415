/**
 * The decisions of a gateway: the simulator's control plane and its queue, told by records what happens before real
 * servers. It keeps no clock, does no I/O and draws nothing by chance, so a recorded run can be decided again.
 *
 *     arrive -> admission -> (queue) -> route -> (prefilled) -> token -> end
 *                  ^  |                  ^   |
 *                  +--+ delay            +---+ retry: at another backend
 *
 * Policies that decide beside are told the same, and that what was really done was done. Each is asked on the state that
 * the real decision was made on; what it would have liked changes nothing.
 */

import { invariant } from '../../runtime/errors.ts';
import { BlockKeys, wordsPerKey } from '../../runtime/keys/keyChain.ts';
import { GatewayQueue } from '../../sim/control/gatewayQueue.ts';
import { type MadePolicies, PolicyControlPlane } from '../../sim/control/plane.ts';
import type {
  AdmissionDecision,
  InstanceProbe,
  InstanceReport,
  RequestPriority,
  RequestView,
  RoutingDecision,
} from '../../sim/control/policy.ts';
import type { GlobalRouterMetrics } from '../../sim/control/routerState.ts';
import { withFallbacks } from './fallbacks.ts';
import type { BoundPlan } from './plan.ts';
import {
  type ArrivalRecord,
  type GatewayInput,
  type GatewayOutput,
  keysOfText,
  type ReportRecord,
  type ShadowTargets,
  type ShadowVerdicts,
} from './records.ts';

interface HeldRequest {
  readonly view: RecordedRequest;
  /** Where it is, -1 before it is routed. */
  instance: number;
  /** Where its prompt is being computed for that, -1 for nowhere else. */
  prefill: number;
  /** Backends that it had its chance at. */
  readonly tried: number[];
  isQueued: boolean;
}

/** Policies that decide beside. */
interface ShadowPlane {
  readonly name: string;
  readonly control: PolicyControlPlane;
}

type AlarmKind = 'admission' | 'tick' | 'expiry';

interface DueTurn {
  readonly atUs: number;
  readonly kind: AlarmKind;
  /** Number of the delayed or queued request; -1 for a tick. */
  readonly request: number;
}

/** Longest list of candidates whose scores are recorded. */
const SCORES_MOST = 64;

export class GatewayCore {
  /** The live policies' own. */
  readonly control: PolicyControlPlane;
  readonly #shadows: readonly ShadowPlane[];
  readonly #queue: GatewayQueue | null;
  readonly #emit: (output: GatewayOutput) => void;
  readonly #open = new Map<number, HeldRequest>();
  readonly #backends = new Map<number, RecordedBackend>();
  readonly #routable = new Set<number>();
  /** In order of their times. */
  readonly #alarms: DueTurn[] = [];
  #nowUs = 0;
  /** Routed by the queue while an input is worked on. */
  readonly #dispatched: { readonly request: number; readonly priority: RequestPriority }[] = [];
  readonly #shed: number[] = [];

  /** @param emit takes decisions in the order in which they are made */
  constructor({ plan, bundle, shadows }: BoundPlan, emit: (output: GatewayOutput) => void) {
    this.#emit = emit;
    const world = (policies: MadePolicies | undefined) => ({
      key: BigInt(plan.seed),
      blockTokens: plan.blockTokens,
      maxSequences: plan.maxSequences,
      ...(policies === undefined ? {} : { policies }),
    });
    const guarded = (name: string, bound: NonNullable<typeof bundle>): MadePolicies =>
      withFallbacks(bound, ({ slot, kind, request, nowUs }) => {
        emit({ out: 'fallback', atUs: nowUs, policy: name, slot, kind, request });
      });
    this.control = new PolicyControlPlane(
      { ...plan.control, ...bundle?.control },
      world(bundle === null ? undefined : guarded('', bundle)),
    );
    this.#shadows = shadows.map(({ name, bundle: bound }) => {
      const config = { ...plan.control, gateway: null, topK: -1, ...bound.control };
      return { name, control: new PolicyControlPlane(config, world(guarded(name, bound))) };
    });
    this.control.recordsScores = plan.control.topK >= 0;
    for (const { control } of this.#shadows) control.recordsScores = false;
    this.#queue =
      plan.queue === null
        ? null
        : new GatewayQueue(this.control, plan.queue, {
            scheduleDispatch: (atUs) => this.#alarm({ atUs, kind: 'tick', request: -1 }),
            scheduleExpiry: ({ number }, atUs) => this.#alarm({ atUs, kind: 'expiry', request: number }),
            dispatched: ({ request, priority }) => {
              this.#dispatched.push({ request: request.number, priority });
            },
            shed: (request) => void this.#shed.push(request),
          });
  }

  /** When it must be woken next; Infinity for never. */
  get nextWakeUs(): number {
    return this.#alarms[0]?.atUs ?? Infinity;
  }

  /** Requests that arrived and have not ended. */
  get openRequests(): number {
    return this.#open.size;
  }

  /** Names of the policies that read what servers say of their caches; '' for the live ones. */
  get readsCaches(): readonly string[] {
    const all = [{ name: '', control: this.control }, ...this.#shadows];
    return all.filter(({ control }) => control.wantsCacheEvents).map(({ name }) => name);
  }

  get traffic(): GlobalRouterMetrics {
    return this.control.router.global;
  }

  /** Takes what happened. Decisions that follow are emitted before it returns. */
  accept(input: GatewayInput): void {
    invariant(input.atUs >= this.#nowUs, 'inputs come in order of time');
    this.#nowUs = input.atUs;
    this.#take(input);
    this.#settle();
  }

  #take(input: GatewayInput): void {
    const { atUs } = input;
    switch (input.in) {
      case 'backend': {
        const backend = new RecordedBackend(input);
        this.#backends.set(input.instance, backend);
        this.#each((control) => control.addInstance(backend));
        return;
      }
      case 'routable':
        if (input.routable) this.#routable.add(input.instance);
        else this.#routable.delete(input.instance);
        this.#each((control) => control.setRoutable(input.instance, input.routable));
        return;
      case 'gone':
        this.#backends.delete(input.instance);
        this.#routable.delete(input.instance);
        this.#each((control) => control.removeInstance(input.instance));
        return;
      case 'report':
        this.#backends.get(input.instance)?.reported(input.report, atUs);
        return;
      case 'kv': {
        const words = keysOfText(input.keys);
        for (let at = 0; at < words.length; at += wordsPerKey) {
          const key = words.subarray(at, at + wordsPerKey);
          this.#each((control) => {
            if (input.stored) control.kvStored(input.instance, input.tier, key, atUs);
            else control.kvRemoved(input.instance, input.tier, key, atUs);
          });
        }
        return;
      }
      case 'arrive':
        this.#arrive(input.request, atUs);
        return;
      case 'wake':
        this.#wake(atUs);
        return;
      case 'cached': {
        const { view, instance, prefill } = this.#request(input.request);
        const by = prefill === -1 ? instance : prefill;
        this.#each((control) => control.scheduled(view, by, input.blocks, atUs));
        return;
      }
      case 'prefilled': {
        const request = this.#request(input.request);
        const { view, prefill } = request;
        if (prefill === -1) return;
        request.prefill = -1;
        this.#each((control) => control.ended(view, prefill, 'handedOff', 0, atUs));
        return;
      }
      case 'token': {
        const request = this.#request(input.request);
        this.#each((control) => control.firstToken(request.view, request.instance, atUs));
        return;
      }
      case 'retry': {
        const request = this.#request(input.request);
        const { view, instance } = request;
        this.#each((control) => control.ended(view, instance, 'redirected', 0, atUs));
        request.tried.push(instance);
        request.instance = request.prefill = -1;
        this.#route(request, this.control.prioritise(view, atUs), atUs);
        return;
      }
      case 'end': {
        const { view, instance } = this.#request(input.request);
        this.#open.delete(input.request);
        this.#each((control) => control.ended(view, instance, input.how, input.outputTokens, atUs));
        return;
      }
      case 'leave': {
        const request = this.#request(input.request);
        const { view, instance } = request;
        if (request.isQueued) this.#queue?.remove(view);
        if (instance === -1) this.#abandon(request, atUs);
        else {
          this.#open.delete(view.number);
          this.#each((control) => control.ended(view, instance, 'dropped', 0, atUs));
        }
      }
    }
  }

  #each(tell: (control: PolicyControlPlane) => void): void {
    tell(this.control);
    for (const { control } of this.#shadows) tell(control);
  }

  #request(number: number): HeldRequest {
    const request = this.#open.get(number);
    invariant(request !== undefined, () => `request ${number} is open`);
    return request;
  }

  #arrive(record: ArrivalRecord, nowUs: number): void {
    const view = new RecordedRequest(record, nowUs);
    const request: HeldRequest = { view, instance: -1, prefill: -1, tried: [], isQueued: false };
    this.#open.set(record.number, request);
    this.#each((control) => control.arrived(view, nowUs));
    this.#admit(request, nowUs);
  }

  #admit(request: HeldRequest, nowUs: number): void {
    const { view } = request;
    const decision = this.control.admit(view, nowUs);
    const shadows = Object.fromEntries(
      this.#shadows.map(({ name, control }) => [
        name,
        verdictOf(control.admit(view, nowUs, decision.verdict)),
      ]),
    );
    this.#emit(admissionRecord(view.number, decision, shadows, nowUs));
    switch (decision.verdict) {
      case 'reject':
        this.#open.delete(view.number);
        return;
      case 'delay':
        this.#alarm({ atUs: nowUs + decision.durationUs, kind: 'admission', request: view.number });
        return;
      case 'admit': {
        const priority = this.control.prioritise(view, nowUs);
        if (this.#queue === null) {
          this.#route(request, priority, nowUs);
          return;
        }
        request.isQueued = true;
        this.#queue.enqueue(view, priority, nowUs);
      }
    }
  }

  /** Does what the queue asked for while it was called. */
  #settle(): void {
    for (let next = this.#shed.pop(); next !== undefined; next = this.#shed.pop()) {
      const request = this.#request(next);
      this.#emit({ out: 'shed', atUs: this.#nowUs, request: next });
      this.#abandon(request, this.#nowUs);
    }
    for (let next = this.#dispatched.shift(); next !== undefined; next = this.#dispatched.shift()) {
      const request = this.#request(next.request);
      request.isQueued = false;
      this.#route(request, next.priority, this.#nowUs);
    }
  }

  #route(request: HeldRequest, priority: RequestPriority, nowUs: number): void {
    const { view, tried } = request;
    const kept = tried.filter((instance) => this.#routable.has(instance));
    for (const instance of kept) this.#each((control) => control.setRoutable(instance, false));
    const decision = this.control.route(view, priority, nowUs);
    let shadows: ShadowTargets = {};
    if (decision !== null) {
      const { target, prefillInstance } = decision;
      const wishes = this.#shadows.map(({ name, control }): [string, number] => {
        const own = control.prioritise(view, nowUs);
        const forced = control.route(view, own, nowUs, { target, prefillInstance });
        return [name, forced?.wished ?? -1];
      });
      shadows = Object.fromEntries(wishes);
    }
    for (const instance of kept) this.#each((control) => control.setRoutable(instance, true));
    if (decision === null) {
      this.#emit({ out: 'unroutable', atUs: nowUs, request: view.number });
      this.#abandon(request, nowUs);
      return;
    }
    request.instance = decision.target;
    request.prefill = decision.prefillInstance;
    this.#emit(routeRecord(view.number, decision, priority, shadows, nowUs));
  }

  /** A request ends that is with no backend. */
  #abandon(request: HeldRequest, nowUs: number): void {
    this.#open.delete(request.view.number);
    this.#each((control) => control.abandoned(request.view, nowUs));
  }

  #alarm(alarm: DueTurn): void {
    let at = this.#alarms.length;
    while (at > 0 && this.#alarms[at - 1].atUs > alarm.atUs) at--;
    this.#alarms.splice(at, 0, alarm);
  }

  /** Handles what is due now; turns that this adds wait for the next call. */
  #wake(nowUs: number): void {
    let due = 0;
    while (due < this.#alarms.length && this.#alarms[due].atUs <= nowUs) due++;
    for (const { kind, request: number } of this.#alarms.splice(0, due)) {
      if (kind === 'tick') this.#queue?.tick(nowUs);
      else {
        const request = this.#open.get(number);
        // it was answered, or its client left, before its time came
        if (request === undefined) continue;
        if (kind === 'admission') this.#admit(request, nowUs);
        else if (request.isQueued && this.#queue?.remove(request.view) === true) {
          this.#emit({ out: 'expired', atUs: nowUs, request: number });
          this.#abandon(request, nowUs);
        }
      }
      this.#settle();
    }
  }
}

/** The verdict of a policy that decided beside. */
function verdictOf({ wished, verdict }: AdmissionDecision): string {
  return wished?.verdict ?? verdict;
}

function admissionRecord(
  request: number,
  decision: AdmissionDecision,
  shadows: ShadowVerdicts,
  atUs: number,
): GatewayOutput {
  const { verdict } = decision;
  return {
    out: 'admission',
    atUs,
    request,
    verdict,
    ...(decision.verdict === 'admit' ? {} : { reason: decision.reason }),
    ...(decision.verdict === 'delay' ? { durationUs: decision.durationUs } : {}),
    ...(Object.keys(shadows).length === 0 ? {} : { shadows }),
  };
}

function routeRecord(
  request: number,
  { target, prefillInstance, reason, expectedBlocks, scores, filteredOut }: RoutingDecision,
  { score, rank }: RequestPriority,
  shadows: ShadowTargets,
  atUs: number,
): GatewayOutput {
  const some = scores.slice(0, SCORES_MOST);
  return {
    out: 'route',
    atUs,
    request,
    target,
    ...(prefillInstance === -1 ? {} : { prefill: prefillInstance }),
    reason,
    score,
    rank,
    expectedBlocks,
    ...(some.length === 0 ? {} : { scores: some.map((each) => [each.instance, each.score] as const) }),
    ...(filteredOut.length === 0
      ? {}
      : { filteredOut: filteredOut.map((each) => [each.instance, each.filter] as const) }),
    ...(Object.keys(shadows).length === 0 ? {} : { shadows }),
  };
}

//  Requests and backends as the control plane sees them, made from their records.

class RecordedRequest implements RequestView {
  readonly number: number;
  readonly id: string;
  readonly tenantId: string;
  readonly sloClass: string;
  readonly model: string;
  readonly adapter: string;
  readonly sessionId: string;
  readonly arrivalUs: number;
  readonly promptTokens: number;
  readonly deadlineUs: number;
  readonly sloTargetUs: number;
  readonly promptBlocks: number;
  readonly keys: BlockKeys;

  constructor(record: ArrivalRecord, arrivalUs: number) {
    const { number, id, tenantId, sloClass, model, adapter, sessionId, promptTokens } = record;
    this.number = number;
    this.id = id;
    this.tenantId = tenantId;
    this.sloClass = sloClass;
    this.model = model;
    this.adapter = adapter;
    this.sessionId = sessionId;
    this.arrivalUs = arrivalUs;
    this.promptTokens = promptTokens;
    this.deadlineUs = record.deadlineUs;
    this.sloTargetUs = record.sloTargetUs;
    const words = keysOfText(record.keys);
    this.promptBlocks = Math.floor(words.length / wordsPerKey);
    this.keys = new BlockKeys(Math.max(1, this.promptBlocks));
    for (let block = 0; block < this.promptBlocks; block++) this.keys.append(words, block * wordsPerKey);
  }
}

class RecordedBackend implements InstanceProbe {
  readonly instance: number;
  readonly id: string;
  readonly role: 'monolithic' | 'prefill' | 'decode';
  readonly model: string;
  readonly configId: string = 'backend';
  readonly capacityBlocks: readonly number[];
  #report: ReportRecord | undefined;
  #takenUs = 0;
  #changes = 0;

  constructor({ instance, id, model, role, capacityBlocks }: GatewayInput & { readonly in: 'backend' }) {
    this.role = role ?? 'monolithic';
    this.instance = instance;
    this.id = id;
    this.model = model;
    this.capacityBlocks = capacityBlocks;
  }

  reported(report: ReportRecord, atUs: number): void {
    this.#report = report;
    this.#takenUs = atUs;
    this.#changes++;
  }

  changes(): number {
    return this.#changes;
  }

  takenUs(): number {
    return this.#takenUs;
  }

  report(into: InstanceReport): void {
    const report = this.#report;
    if (report === undefined) {
      // nothing is known yet: an empty instance
      into.usedBlocks = this.capacityBlocks.map(() => 0);
      into.freeBlocks = [...this.capacityBlocks];
      into.queueDepth = into.batchSize = into.maxBatch = into.preemptions = 0;
      into.hitBlocks = into.lookupBlocks = into.offloadedBlocks = into.reloadedBlocks = 0;
      into.recentTtftUs = into.recentTpotUs = 0;
      into.adapters = [];
      return;
    }
    Object.assign(into, report, { usedBlocks: [...report.usedBlocks], freeBlocks: [...report.freeBlocks] });
  }
}
