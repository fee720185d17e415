/** How clients behave that are not the normal one: bursts, oversized prompts, choices among prefixes. */

export { BurstFactor } from './burstFactor.ts';
export { behavedGaps } from './gaps.ts';
export { type ChosenPrefix, PrefixChoice } from './prefixChoice.ts';
export { oversizedTokens, PromptLengths, promptLengths } from './promptLengths.ts';
