/** The model on the device, and the same in float64 to compare it with. */

export { Decoder, type DecoderDevice, type DecoderLimits, type DecoderStep } from './decoder.ts';
export { referenceLogits } from './referenceDecoder.ts';
