/**
 * Whether blocks of one request below HBM are to be loaded, or computed again, where others wait for the same
 * engine, the same link and the same room. What counts is the delay of all of them together:
 *
 *     computed   the engine is taken for C: so much later for each request that runs or waits
 *     loaded     the request waits L, the queue of the link included, and lies in HBM meanwhile: those that
 *                wait for room wait longer by its share of it; and who loads behind it waits for its bytes
 *
 * Nothing is known of requests to come, so the queues that there are stand for those that will be.
 */

export interface LoadChoice {
  /** C: what the engine needs to compute the blocks, alone. */
  readonly computeUs: number;
  /** L: until all blocks are there. */
  readonly loadUs: number;
  /** Of L, how long the links carry these blocks. */
  readonly linkUs: number;
  /** Time that passes anyway before the request can run. */
  readonly slackUs: number;
  /** Share of HBM that the request takes while it loads. */
  readonly roomShare: number;
  /** Requests that run, that wait for room or a seat, and that load. */
  readonly running: number;
  readonly waiting: number;
  readonly loading: number;
}

export function isLoadBetter(choice: LoadChoice): boolean {
  const { computeUs, loadUs, linkUs, slackUs, roomShare, running, waiting, loading } = choice;
  const ownUs = Math.max(0, loadUs - slackUs);
  const loadedUs = ownUs * (1 + waiting * roomShare) + linkUs * loading;
  const computedUs = computeUs * Math.max(1, running + waiting);
  return loadedUs <= computedUs;
}
