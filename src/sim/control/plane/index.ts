/** The control plane made of policies. */

export { checkControl, defaultControl } from './checkConfig.ts';
export { PolicyControlPlane } from './plane.ts';
export type { ControlWorld, MadePolicies } from './planePolicies.ts';
