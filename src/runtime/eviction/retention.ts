/**
 * `RetentionPolicy`: decorator that applies retention hints on top of any eviction policy. A hint to keep takes a
 * replica out of the policy's order until its time; then it takes the place of one just released. A hint to drop lets
 * it go before all others once its time is up.
 *
 *     enter --(kept: until `due`)--> kept --(due, or kept replicas hold too much)--> policy's order --> evicted
 *           --(no hint)----------------------------------------------------------->
 *           --(low priority)--> policy's order, and from `due` on before all others
 *
 * Nothing is pinned: a hint ends at its time, kept replicas hold at most half of a tier, and if nothing else can be
 * evicted the kept replica that is due first goes. A priority is worth a share of the mean stay of blocks in the
 * tier, and is halved by every later use that does not repeat it.
 */

import { invariant } from '../errors.ts';
import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { EvictionPolicy, EvictionWorld, Retention, Visit } from './evictionPolicy.ts';
import { RankedReplicas } from './rankedPolicy.ts';

const HIGHEST_PRIORITY = 100;
/** Share of a tier's capacity that kept replicas may hold: the policy must be left enough to choose from. */
const KEPT_SHARE = 0.5;
/** Weight of the newest eviction in the mean stay (no unit). */
const STAY_WEIGHT = 1 / 16;

export class RetentionPolicy implements EvictionPolicy {
  readonly #world: EvictionWorld;
  readonly #policy: EvictionPolicy;
  /**
   * Uses of a content since it is known, by content, counted up to two. A content that others use too is not dropped.
   */
  #uses: Uint8Array;
  /** Present from the first hint on. */
  #hints: Hints | null = null;

  constructor(policy: EvictionPolicy, world: EvictionWorld) {
    this.#policy = policy;
    this.#world = world;
    this.#uses = new Uint8Array(firstRows(world.contents, world.whole));
  }

  begin(visit: Visit): void {
    this.#policy.begin?.(visit);
  }

  touch(content: number, visit: Visit): void {
    if (content >= this.#uses.length) {
      this.#uses = grown(this.#uses, rowsFor(content, this.#uses.length, this.#world.contents));
    }
    if (this.#uses[content] < 2) this.#uses[content]++;
    this.#hints?.used(content);
    this.#policy.touch(content, visit);
  }

  retain(content: number, retention: Retention): void {
    this.#hints ??= new Hints(this.#world);
    this.#hints.wish(content, retention);
  }

  enter(replica: number, tier: number, sizeClass: number, content: number): void {
    const hints = this.#hints;
    if (hints === null) this.#policy.enter(replica, tier, sizeClass, content);
    else if (!hints.keeps(replica, tier, sizeClass, content)) this.#line(replica, tier, sizeClass, content);
    else {
      while (hints.keepsTooMuch(tier)) this.#giveUp(hints, hints.kept.first(tier), tier);
    }
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    const hints = this.#hints;
    if (hints === null) this.#policy.leave(replica, tier, sizeClass);
    else if (!hints.leaves(replica, tier, sizeClass)) this.#policy.leave(replica, tier, sizeClass);
  }

  victim(tier: number): number {
    const hints = this.#hints;
    if (hints === null) return this.#policy.victim(tier);
    this.#giveUpDue(hints, tier);
    const dropped = hints.droppable(hints.dropped.first(tier));
    const victim = dropped === -1 ? this.#policy.victim(tier) : dropped;
    return hints.named(tier, victim === -1 ? hints.kept.first(tier) : victim);
  }

  victimOfClass(tier: number, sizeClass: number): number {
    const hints = this.#hints;
    if (hints === null) return this.#policy.victimOfClass(tier, sizeClass);
    this.#giveUpDue(hints, tier);
    const dropped = hints.droppable(hints.dropped.firstOfClass(tier, sizeClass));
    const victim = dropped === -1 ? this.#policy.victimOfClass(tier, sizeClass) : dropped;
    return hints.named(tier, victim === -1 ? hints.kept.firstOfClass(tier, sizeClass) : victim);
  }

  /** Whether a hint keeps the replica where it is, so that need alone takes it, and no mover that was not asked. */
  keeps(replica: number): boolean {
    return this.#hints?.isKept(replica) ?? false;
  }

  /** Without replicas to be dropped first: they are few, and copying them down would be wasted. */
  upcoming(tier: number, count: number): number[] {
    if (this.#policy.upcoming !== undefined) return this.#policy.upcoming(tier, count);
    const next = this.#policy.victim(tier);
    return next === -1 ? [] : [next];
  }

  /** Enters the policy's order, and the replicas to drop where a hint asks for it. */
  #line(replica: number, tier: number, sizeClass: number, content: number): void {
    this.#policy.enter(replica, tier, sizeClass, content);
    if (!(this.#uses[content] >= 2)) this.#hints?.mayDrop(replica, tier, sizeClass, content);
  }

  #giveUp(hints: Hints, replica: number, tier: number): void {
    const sizeClass = hints.sizeClass[replica];
    hints.leaves(replica, tier, sizeClass);
    this.#line(replica, tier, sizeClass, hints.content[replica]);
  }

  #giveUpDue(hints: Hints, tier: number): void {
    for (let first = hints.due(tier); first !== -1; first = hints.due(tier)) this.#giveUp(hints, first, tier);
  }

  forgotten(content: number): void {
    this.#uses[content] = 0;
    this.#hints?.forgotten(content);
    this.#policy.forgotten(content);
  }

  dump(tier: number): number[] {
    const hints = this.#hints;
    const own = this.#policy.dump(tier);
    if (hints === null) return own;
    const classes = Array.from({ length: this.#world.unitBytes.length }, (_, c) => c);
    const dropped = hints.dropped.dump(tier).filter((replica) => hints.droppable(replica) !== -1);
    const kept = hints.kept.dump(tier);
    const rest = own.filter((replica) => !dropped.includes(replica));
    return classes.flatMap((c) => [...dropped, ...rest, ...kept].filter((r) => hints.sizeClass[r] === c));
  }

  visitState(visitor: StateVisitor): void {
    this.#policy.visitState(visitor);
    this.#uses = visitor.growing(this.#uses);
    if (visitor.flag(this.#hints !== null)) {
      this.#hints ??= new Hints(this.#world);
      this.#hints.visitState(visitor);
    } else {
      this.#hints = null;
    }
  }

  checkIntegrity(): void {
    this.#hints?.checkIntegrity();
    this.#policy.checkIntegrity();
  }
}

/** The hints, and the replicas to which they apply now. */
class Hints {
  /** Kept out of the policy's order, by due time; and in its order, by the time from which they go before others. */
  readonly kept: RankedReplicas;
  readonly dropped: RankedReplicas;
  /** Columns by replica. */
  readonly content: Int32Array;
  readonly sizeClass: Uint8Array;
  readonly #enteredUs: Float64Array;
  readonly #dueUs: Float64Array;
  /** Columns by content. */
  readonly #priority: Int8Array;
  readonly #keepUntilUs: Float64Array;
  /** Columns by tier: bytes kept, mean time from entering to eviction (0 before any), the victim named last. */
  readonly #keptBytes: Float64Array;
  readonly #stayUs: Float64Array;
  readonly #named: Int32Array;
  readonly #world: EvictionWorld;

  constructor(world: EvictionWorld) {
    const replicas = world.base[world.tiers];
    this.#world = world;
    this.kept = new RankedReplicas(world);
    this.dropped = new RankedReplicas(world);
    this.content = new Int32Array(replicas);
    this.sizeClass = new Uint8Array(replicas);
    this.#enteredUs = new Float64Array(replicas).fill(-1);
    this.#dueUs = new Float64Array(replicas);
    this.#priority = new Int8Array(world.contents);
    this.#keepUntilUs = new Float64Array(world.contents);
    this.#keptBytes = new Float64Array(world.tiers);
    this.#stayUs = new Float64Array(world.tiers);
    this.#named = new Int32Array(world.tiers).fill(-1);
  }

  /** The longest and highest hint wins; a low priority applies only if no hint asked to keep. */
  wish(content: number, { priority, keepUntilUs }: Retention): void {
    const before = this.#priority[content];
    this.#priority[content] = before > 0 ? Math.max(before, priority) : priority;
    this.#keepUntilUs[content] = Math.max(this.#keepUntilUs[content], keepUntilUs);
  }

  used(content: number): void {
    this.#priority[content] = Math.trunc(Math.max(0, this.#priority[content]) / 2);
  }

  forgotten(content: number): void {
    this.#priority[content] = 0;
    this.#keepUntilUs[content] = 0;
  }

  /** The replica enters. @returns whether it is kept, and so not in the policy's order */
  keeps(replica: number, tier: number, sizeClass: number, content: number): boolean {
    const nowUs = this.#world.nowUs();
    this.content[replica] = content;
    this.sizeClass[replica] = sizeClass;
    this.#enteredUs[replica] = nowUs;
    const worthUs = (this.#priority[content] / HIGHEST_PRIORITY) * this.#stayUs[tier];
    const dueUs = Math.max(this.#keepUntilUs[content], nowUs + worthUs);
    if (dueUs <= nowUs) return false;
    this.#dueUs[replica] = dueUs;
    this.kept.enter(replica, tier, sizeClass, dueUs);
    this.#keptBytes[tier] += this.#world.unitBytes[sizeClass];
    return true;
  }

  mayDrop(replica: number, tier: number, sizeClass: number, content: number): void {
    const priority = this.#priority[content];
    if (priority >= 0) return;
    const dueUs = this.#world.nowUs() + (1 + priority / HIGHEST_PRIORITY) * this.#stayUs[tier];
    this.#dueUs[replica] = dueUs;
    this.dropped.enter(replica, tier, sizeClass, dueUs);
  }

  /** The replica leaves. @returns whether it was kept */
  leaves(replica: number, tier: number, sizeClass: number): boolean {
    if (this.#named[tier] === replica) {
      this.#named[tier] = -1;
      this.#stayed(tier, this.#enteredUs[replica]);
    }
    if (this.dropped.has(replica)) this.dropped.leave(replica, tier, sizeClass);
    if (!this.kept.has(replica)) return false;
    this.kept.leave(replica, tier, sizeClass);
    this.#keptBytes[tier] -= this.#world.unitBytes[sizeClass];
    return true;
  }

  /** @param enteredUs negative if it entered before the first hint */
  #stayed(tier: number, enteredUs: number): void {
    if (enteredUs < 0) return;
    const stayUs = this.#world.nowUs() - enteredUs;
    const mean = this.#stayUs[tier];
    this.#stayUs[tier] = mean === 0 ? stayUs : mean * (1 - STAY_WEIGHT) + stayUs * STAY_WEIGHT;
  }

  isKept(replica: number): boolean {
    return this.kept.has(replica) && this.#dueUs[replica] > this.#world.nowUs();
  }

  keepsTooMuch(tier: number): boolean {
    return this.#keptBytes[tier] > KEPT_SHARE * this.#world.capacityBytes[tier];
  }

  /** The kept replica of the tier whose time is up, or -1. */
  due(tier: number): number {
    const first = this.kept.first(tier);
    return first !== -1 && this.#dueUs[first] <= this.#world.nowUs() ? first : -1;
  }

  /** The replica if its time to go before others has come, else -1. */
  droppable(replica: number): number {
    return replica !== -1 && this.#dueUs[replica] <= this.#world.nowUs() ? replica : -1;
  }

  named(tier: number, victim: number): number {
    this.#named[tier] = victim;
    return victim;
  }

  visitState(visitor: StateVisitor): void {
    this.kept.visitState(visitor);
    this.dropped.visitState(visitor);
    visitor.array(this.content);
    visitor.array(this.sizeClass);
    visitor.array(this.#enteredUs);
    visitor.array(this.#dueUs);
    visitor.array(this.#priority);
    visitor.array(this.#keepUntilUs);
    visitor.array(this.#keptBytes);
    visitor.array(this.#stayUs);
    visitor.array(this.#named);
  }

  checkIntegrity(): void {
    this.kept.checkIntegrity();
    this.dropped.checkIntegrity();
    for (let tier = 0; tier < this.#world.tiers; tier++) {
      let bytes = 0;
      for (const replica of this.kept.dump(tier)) bytes += this.#world.unitBytes[this.sizeClass[replica]];
      invariant(bytes === this.#keptBytes[tier], 'the bytes of kept replicas are counted');
      invariant(!this.keepsTooMuch(tier), 'kept replicas hold no more than their share');
      for (const replica of this.dropped.dump(tier)) {
        invariant(!this.kept.has(replica), 'what may be dropped is not kept');
      }
    }
  }
}
