/**
 * A request on its way through a simulation: what the control plane may see of it, what the scheduler is
 * given, and what its metrics are made of. Its block keys are made when somebody first asks for them.
 */

import type { ServingRequest } from '../../runtime/batching/index.ts';
import type { BlockKeys } from '../../runtime/keys/index.ts';
import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import type { Priority, RequestView } from '../control/index.ts';
import type { WorkloadRequest } from '../workload/index.ts';
import type { PromptKeys } from './promptKeys.ts';

export class SimRequest implements RequestView, ServingRequest {
  readonly workload: WorkloadRequest;
  /** Row of the request table, and its number for the control plane. */
  readonly number: number;
  readonly id: string;
  readonly promptTokens: number;
  maxOutputTokens: number;
  readonly arrivalUs: number;
  /** What an instance does of it: all, or with a hand-off its prompt or its output. */
  part: 'whole' | 'prefill' | 'decode' = 'whole';
  /** Lower is more urgent. */
  priority = 0;
  /** By which it joins the batch, lower first, and gives way, higher first; NaN where no policy ranks. */
  queueRank: number = NaN;
  victimRank: number = NaN;
  /** Leading blocks that it found cached when it first joined a batch, or -1 before. */
  foundBlocks = -1;
  /** Blocks that it found when it last asked to join a batch, by tier from HBM down; null once it has joined. */
  foundByTier: readonly number[] | null = null;
  /** Blocks whose loads began when it was announced, by the tier in which they lay; null where none did. */
  announcedByTier: readonly number[] | null = null;
  /** Step that sampled the first token since the request last joined the batch, or -1. */
  startedStep = -1;
  /** When its last token before that came, or -1: for a request that goes on after a preemption. */
  lastTokenUs = -1;
  /** Sum and number of the gaps between tokens, but for those since `startedStep`. */
  gapUs = 0;
  gaps = 0;
  /** Each gap before `startedStep`, where the request gave way; null for most. */
  pastGapsUs: number[] | null = null;
  /** Steps since `startedStep` that left the request out, in order. */
  skipped: number[] | null = null;
  /** While the prefill instance has it: where it goes on. */
  decodeInstance = -1;
  /** The instance that computed its prompt for another one, or does; -1 for none. */
  prefillInstance = -1;
  /** While it is routed again: the instances that it was routed to before, -1 for none. */
  formerTarget = -1;
  formerPrefill = -1;
  /** The priority with which it is routed next; null while it is not on its way to routing. */
  routedWith: Priority | null = null;
  readonly #makeKeys: PromptKeys;
  #keys: BlockKeys | null = null;

  constructor(workload: WorkloadRequest, number: number, makeKeys: PromptKeys) {
    this.workload = workload;
    this.number = number;
    this.id = workload.id;
    this.promptTokens = workload.inputTokens;
    this.maxOutputTokens = workload.outputTokens;
    this.arrivalUs = workload.arrivalUs;
    this.#makeKeys = makeKeys;
  }

  get keys(): BlockKeys {
    if (this.#keys === null) this.#keys = this.#makeKeys.keysOf(this.workload, this.number);
    return this.#keys;
  }

  get promptBlocks(): number {
    return Math.floor(this.promptTokens / this.#makeKeys.blockTokens);
  }

  get tenantId(): string {
    return this.workload.origin.tenantId;
  }

  get sloClass(): string {
    return this.workload.origin.sloClass;
  }

  get model(): string {
    return this.workload.origin.model;
  }

  get adapter(): string {
    return this.workload.origin.adapter;
  }

  get sessionId(): string {
    return this.workload.sessionId;
  }

  get deadlineUs(): number {
    return this.workload.deadlineUs;
  }

  get sloTargetUs(): number {
    return this.workload.origin.sloTargetUs;
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    visitor.value(
      () => ({
        part: this.part,
        pastGapsUs: this.pastGapsUs?.slice() ?? null,
        skipped: this.skipped?.slice() ?? null,
        routedWith: this.routedWith,
        foundByTier: this.foundByTier,
        announcedByTier: this.announcedByTier,
      }),
      ({ part, pastGapsUs, skipped, routedWith, foundByTier, announcedByTier }) => {
        this.part = part;
        this.pastGapsUs = pastGapsUs?.slice() ?? null;
        this.skipped = skipped?.slice() ?? null;
        this.routedWith = routedWith;
        this.foundByTier = foundByTier;
        this.announcedByTier = announcedByTier;
      },
    );
  }
}
