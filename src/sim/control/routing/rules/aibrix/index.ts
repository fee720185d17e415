/** Rules of AIBrix's gateway. */

export { AibrixLeastLatency, AibrixThroughput } from './outcomes.ts';
export { AibrixConductor, AibrixPd } from './pd.ts';
export { AibrixPrefixCache } from './prefixCache.ts';
export { AibrixVtc } from './vtc.ts';
