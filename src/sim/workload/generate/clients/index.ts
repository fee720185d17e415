/**
 * The stream of one client's requests (single ones, conversations, windows), its share of the aggregate rate,
 * and what merging such streams needs.
 */

export { NO_PREFIX, type Prefix } from '../prefix.ts';
export { Client, type ClientStream, originOf, spanTurn, type Turn } from './client.ts';
export { ConversationStream } from './conversation.ts';
export { EarliestFirst } from './earliest.ts';
export { HeldMemory } from './heldMemory.ts';
export { clientRatesPerUs, hasWindowParameters, WindowRates } from './rates.ts';
export { SingleStream } from './single.ts';
export { WindowedStream } from './windowed.ts';
