/** Prefill and decode in two processes: `tierkv/handoff`. */

import '../../requireNode.ts';

export type { HandoffOffer, OfferEnd } from './offer.ts';
export {
  type HandoffEnd,
  type HandoffOutcome,
  HandoffReceiver,
  type HandoffReceiverOptions,
  handoffOutcomes,
} from './receiver.ts';
export type { HandoffAddress, HandoffReference, HandoffWay } from './reference.ts';
export { HandoffSender, type HandoffSenderOptions, type SenderCounts } from './sender.ts';
export { type TransferParams, type TransferWish, transferAnswer, transferWish } from './transferParams.ts';
