/** How a prefix that lies below HBM is brought back: how much of it is loaded, how much computed again. */

export { ComputePace } from './computePace.ts';
export { LinkPace } from './linkPace.ts';
export { isLoadBetter, type LoadChoice } from './loadAmongOthers.ts';
export {
  type ComputeEstimate,
  type LoadEstimate,
  type LoadPlan,
  loadOrRecompute,
  type PrefixLeft,
  planOf,
  squaresOf,
} from './loadOrRecompute.ts';
export { type FoundPrefix, isOurs, type MeetingPart, nextPart, passArrived } from './prefixMeeting.ts';
