/** Who watches a simulation: for traces and tests. Nothing that it does reaches the simulation. */

import type { BlockKeys } from '../../runtime/keys/index.ts';
import type { AdmissionDecision, Priority, RoutingDecision, ShadowDivergence } from '../control/index.ts';
import type { SimRequest } from '../instance/index.ts';
import type { Status } from '../metrics/index.ts';
import type { Handoff, HandoffSend } from './flow/handoff.ts';
import type { ReplicaChange, ScaleChange } from './scaling/scaleChange.ts';

/** One step of an instance. */
export interface StepSpan {
  readonly instance: number;
  readonly startUs: number;
  readonly endUs: number;
  readonly tokens: number;
  readonly decodes: number;
  readonly prefills: number;
  /** Part of the step in which it waits for transfers. */
  readonly transferUs: number;
  /** Keys of requests whose loads, since the step before, brought back blocks that had just gone down. */
  readonly thrashedFor: readonly BlockKeys[];
}

export interface SimulationObserver {
  step?(record: StepSpan): void;
  arrived?(request: SimRequest, nowUs: number): void;
  admission?(request: SimRequest, decision: AdmissionDecision, nowUs: number): void;
  prioritised?(request: SimRequest, priority: Priority, nowUs: number): void;
  /** `null`: no instance could take it. */
  routing?(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void;
  /** It joined the batch of the instance, for the first time or again. */
  joined?(request: SimRequest, instance: number, nowUs: number): void;
  /** It gave its blocks up and waits again. */
  preempted?(request: SimRequest, instance: number, nowUs: number): void;
  /** KV of a request goes on the way to its decode instance. */
  handoffSent?(sent: HandoffSend): void;
  /** The KV of a request has come to its decode instance. */
  handedOff?(handoff: Handoff): void;
  diverged?(divergence: ShadowDivergence): void;
  /**
   * A block can be found from now on in that tier of the instance, HBM 0. `key` is read during the call only.
   */
  stored?(instance: number, tier: number, key: Uint32Array): void;
  /** It can be found there no more. */
  removed?(instance: number, tier: number, key: Uint32Array): void;
  /** An autoscaler changes the number of replicas. */
  scaled?(change: ScaleChange): void;
  /** A replica begins a phase of its life. */
  replica?(change: ReplicaChange): void;
  /** `instance` is -1 for a request that none had. */
  ended?(request: SimRequest, status: Status, timeUs: number, instance: number): void;
}

/** Tells several observers of everything. */
export function observers(all: readonly SimulationObserver[]): SimulationObserver {
  if (all.length === 1) return all[0];
  const tell = <K extends keyof SimulationObserver>(name: K): Partial<SimulationObserver> => {
    const told = all.filter((one) => one[name] !== undefined);
    if (told.length === 0) return {};
    const call = (...args: unknown[]): void => {
      for (const one of told) (one[name] as (...args: unknown[]) => void).apply(one, args);
    };
    return { [name]: call };
  };
  return {
    ...tell('step'),
    ...tell('arrived'),
    ...tell('admission'),
    ...tell('prioritised'),
    ...tell('routing'),
    ...tell('joined'),
    ...tell('preempted'),
    ...tell('handoffSent'),
    ...tell('handedOff'),
    ...tell('diverged'),
    ...tell('stored'),
    ...tell('removed'),
    ...tell('scaled'),
    ...tell('replica'),
    ...tell('ended'),
  };
}
