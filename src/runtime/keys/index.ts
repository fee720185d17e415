/** Keys: what a block is called, such that equal names mean equal bytes that may be shared. */

export { blake2s } from './blake2s.ts';
export { BlockKeys, keyToHex, wordsPerKey } from './blockKeys.ts';
export { CanonicalWriter, ValueType } from './encoding.ts';
export { ExternalKeys, type ExternalNamespace } from './externalKeys.ts';
export { KeyChain } from './keyChain.ts';
export { elementAt, type KeyElements, type KeySource, requireElements } from './keySource.ts';
export { encodeNamespace, type KeyNamespace, secretKeyBytesMin, tokensPerKey } from './namespace.ts';
export { type RequestExtra, type RequestExtras, requestExtras } from './requestExtras.ts';
