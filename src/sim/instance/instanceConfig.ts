/** What an instance is made of, what it asks of the simulation around it, and what it counts. */

import type { PreemptionMode } from '../../runtime/batching/index.ts';
import type { Role } from '../control/index.ts';
import type { LatencyModel } from '../latency/index.ts';
import type { EngineStep } from './engine/index.ts';
import type { SimRequest } from './simRequest.ts';

/** What an instance asks of the simulation around it. */
export interface InstanceHost {
  /** Last time that the simulation reaches. */
  readonly horizonUs: number;
  scheduleStep(instance: number, timeUs: number): void;
  stepped(instance: number, startUs: number, endUs: number, step: EngineStep): void;
  /** A request gave its blocks up. */
  gaveWay(request: SimRequest, instance: number): void;
  /** The request joined the batch. */
  admitted(request: SimRequest, instance: number): void;
  /** Its first token is on its way. */
  started(request: SimRequest, instance: number): void;
  /** So many tokens of a prompt that goes to another instance are there at `timeUs`, the end of a step. */
  computed(request: SimRequest, instance: number, tokens: number, timeUs: number): void;
  /** Its prompt is computed, and its output is another instance's. `timeUs` is the end of that step. */
  prefilled(request: SimRequest, instance: number, timeUs: number): void;
  /** The request ended here; its row says how. `timeUs` is when its last token was there. */
  ended(request: SimRequest, instance: number, timeUs: number): void;
}

export interface InstanceLimits {
  /** Prompt and output of a request together; 0 for no limit. */
  readonly maxModelTokens: number;
  /** Most requests in the batch. */
  readonly maxSequences: number;
  /** What a request that gives way keeps of its tokens. */
  readonly preemption: PreemptionMode;
}

/** What an instance is, beside its engine. */
export interface InstanceConfig {
  readonly id: string;
  readonly role: Role;
  /** Model that it serves, '' for any. */
  readonly model: string;
  /** Deployment configuration that it belongs to. */
  readonly configId: string;
  readonly blockTokens: number;
  readonly latency: LatencyModel;
  readonly limits: InstanceLimits;
}

export interface InstanceCounters {
  inputTokens: number;
  outputTokens: number;
  completed: number;
  unservable: number;
  timedOut: number;
  lengthCapped: number;
  /** Sum of the waiting requests seen by each step. */
  waitingSum: number;
  /** Microseconds in which a step ran. */
  busyUs: number;
  /** Part of `busyUs` in which steps waited for transfers. */
  transferUs: number;
}

export function noCounts(): InstanceCounters {
  return {
    inputTokens: 0,
    outputTokens: 0,
    completed: 0,
    unservable: 0,
    timedOut: 0,
    lengthCapped: 0,
    waitingSum: 0,
    busyUs: 0,
    transferUs: 0,
  };
}
