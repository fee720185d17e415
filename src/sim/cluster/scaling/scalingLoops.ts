/**
 * The autoscalers of a cluster, one for each pool that scales. At one time they look, and their replicas
 * change, in order of the pools. An instance of a pool that does not scale is none of theirs.
 */

import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type { RequestView, RoutingDecision } from '../../control/index.ts';
import type { ScalingLoop } from './scalingLoop.ts';

export class ScalingLoops {
  readonly #loops: readonly ScalingLoop[];
  readonly #byPool: readonly (ScalingLoop | undefined)[];
  readonly #poolOf: readonly number[];

  /**
   * @param byPool undefined for a pool that does not scale
   * @param poolOf pool by instance, to which instances are added as they come
   */
  constructor(byPool: readonly (ScalingLoop | undefined)[], poolOf: readonly number[]) {
    this.#loops = byPool.filter((loop) => loop !== undefined);
    this.#byPool = byPool;
    this.#poolOf = poolOf;
  }

  begin(): void {
    for (const loop of this.#loops) loop.begin();
  }

  /** Whether the instance, which there is at the start, may get requests from the start. */
  isReady(instance: number): boolean {
    return this.#of(instance)?.isReady(instance) ?? true;
  }

  /** A poll of the autoscaler of that number is due. */
  check(number: number, nowUs: number): void {
    this.#loops[number].check(nowUs);
  }

  /** The time of a replica's phase is up. */
  due(number: number, replica: number, nowUs: number): void {
    this.#loops[number].due(replica, nowUs);
  }

  arrived(request: RequestView): void {
    for (const loop of this.#loops) loop.arrived(request);
  }

  routed(request: RequestView, { target, prefillInstance }: RoutingDecision): void {
    const prefillPool = prefillInstance === -1 ? -1 : this.#poolOf[prefillInstance];
    for (const loop of this.#loops) loop.routed(request, this.#poolOf[target], prefillPool);
  }

  /** A request that the instance had has ended; so has what the prefill instance did for it, if one did. */
  ended(row: number, instance: number, prefillInstance: number): void {
    const own = this.#of(instance);
    own?.ended(row);
    const prefill = prefillInstance === -1 ? undefined : this.#of(prefillInstance);
    if (prefill !== own) prefill?.ended(row);
  }

  /** Something left the instance: if it drains, it may be empty now. */
  left(instance: number, nowUs: number): void {
    this.#of(instance)?.left(instance, nowUs);
  }

  /** Factor on the time of a step that the instance begins now. */
  slowdown(instance: number, nowUs: number): number {
    return this.#of(instance)?.slowdown(instance, nowUs) ?? 1;
  }

  #of(instance: number): ScalingLoop | undefined {
    return this.#byPool[this.#poolOf[instance]];
  }

  visitState(visitor: StateVisitor): void {
    for (const loop of this.#loops) loop.visitState(visitor);
  }
}
