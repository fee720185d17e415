/** The control plane made of policies. */

export { checkControl, defaultControl } from './checkConfig.ts';
export { type ControlWorld, type MadePolicies, PolicyControlPlane } from './plane.ts';
