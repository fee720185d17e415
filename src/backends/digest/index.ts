/** The digest on the host: `hostDigest` computes what `runtime/digest.ts` defines, several times as fast. */

export { type DigestEngine, digestEngine, hostDigest } from './hostDigest.ts';
