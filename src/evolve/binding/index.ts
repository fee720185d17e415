/** From a bundle to policies that the control plane and the engines call. */

export { type BoundBundle, bindBundle } from './bind.ts';
