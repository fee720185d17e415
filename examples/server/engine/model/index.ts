/** The model on the device, and the same in float64 to compare it with. */

export {
  Decoder,
  type DecoderDevice,
  type DecoderGroup,
  type DecoderLimits,
  type DecoderStep,
  type GroupPlaces,
} from './decoder.ts';
export { referenceLogits } from './referenceDecoder.ts';
export { shadersDigest } from './shaderText.ts';
