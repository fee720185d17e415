/**
 * Counts of all that has happened so far, in blocks unless a name says bytes. The manager counts, reports and metrics
 * read. At least one test moves each counter.
 */

/** Counts of a manager since its start, in blocks unless a name says bytes. */
export class Counters {
  /** Matched blocks of opened sequences, by the tier in which they lay or were to arrive. */
  readonly hits: Float64Array;
  /** Blocks of opened sequences that were not matched. */
  misses = 0;
  /** Matched blocks that joined a job in flight. Part of `hits`. */
  joined = 0;
  /** Blocks sent from a tier to a lower one. Index: the tier above. */
  readonly demotions: Float64Array;
  /** Blocks that left HBM and stayed in a lower tier, whether they were sent or lay there already. */
  offloads = 0;
  /** Blocks sent from a tier to HBM. Index: the tier below. */
  readonly reloads: Float64Array;
  /** Evictions by tier, whether moved or dropped. */
  readonly evictions: Float64Array;
  /** Bytes sent to each tier from the one above. */
  readonly writtenBytes: Float64Array;
  /** Bytes that loads brought from each tier. */
  readonly readBytes: Float64Array;
  /**
   * Blocks that were dropped because the write budget of the tier below did not pay for them. Part of
   * `dropped`.
   */
  writesDeclined = 0;
  /**
   * Blocks that were dropped because too much of their tier was on its way down already. Part of `dropped`.
   */
  demotionsSkipped = 0;
  /** Blocks brought up to a tier other than HBM. Index: the tier they came to. */
  readonly promotions: Float64Array;
  /** Blocks copied within HBM for sequences. */
  copies = 0;
  /** Contents whose last copy was evicted. */
  dropped = 0;
  /** Demotions that failed. Their content is lost unless it was taken back, or lies elsewhere. */
  demotionsFailed = 0;
  /** Evicted blocks that no tier below took, and that are cached again where they lay. Part of `demotionsFailed`. */
  takenBack = 0;
  /** Loads that ended otherwise than loaded, by outcome. */
  readonly loadsFailed: Float64Array = new Float64Array(6);
  /** Reloads within the thrashing window of the block's own offload. */
  thrashed = 0;
  /** Second copies of a content that was sealed twice. */
  aliases = 0;
  /** Sealed blocks whose digest differs from the digest of the content's first copy. */
  diverged = 0;
  /** Contents whose last copy went with the bytes of a lost tier. */
  lost = 0;
  /** Blocks that a lower tier held since an earlier run. */
  adopted = 0;
  /** Blocks that a lower tier held and that were computed all the same, because that was sooner. */
  recomputed = 0;
  refusedAllocations = 0;
  preemptions = 0;

  constructor(tiers: number) {
    this.hits = new Float64Array(tiers);
    this.demotions = new Float64Array(tiers);
    this.reloads = new Float64Array(tiers);
    this.writtenBytes = new Float64Array(tiers);
    this.readBytes = new Float64Array(tiers);
    this.evictions = new Float64Array(tiers);
    this.promotions = new Float64Array(tiers);
  }

  get hitBlocks(): number {
    return this.hits.reduce((sum, hits) => sum + hits, 0);
  }

  /** Hits / (hits + misses) over blocks of opened sequences; 0 before any. */
  get hitRate(): number {
    const hits = this.hitBlocks;
    return hits + this.misses === 0 ? 0 : hits / (hits + this.misses);
  }
}
