/** What a look at a store's files finds: for the worker that looks and for the test that is told. */

export interface StoreLook {
  readonly records: number;
  readonly right: number;
  /** Reads that the store refused as damaged or missing. */
  readonly refused: number;
  /** Blocks that came back as right and hold other bytes. */
  readonly wrong: number;
  /** By slot: the generation that was found. */
  readonly generations: Readonly<Record<number, number>>;
  readonly recoveredFrom: string;
}
