/** The door `tierkv/node-llama-cpp`: prefixes of llama.cpp's models in the tiers. */

import '../../requireNode.ts';

export { LlamaPrefixes, type LlamaPrefixOptions, type LlamaTurn } from './prefixes.ts';
