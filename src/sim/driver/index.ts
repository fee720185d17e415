/** The modeled driver: the same jobs as the real one, on a virtual clock. */

export { Flights } from './flights.ts';
export { LinkModel, type LinkProfile, type LinkProfiles } from './linkModel.ts';
export { ModeledDriver, modeledDigest } from './modeledDriver.ts';
export { type Timeline, TransferTimeline } from './timeline.ts';
