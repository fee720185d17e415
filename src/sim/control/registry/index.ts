/** Policies by name and parameters, checked. */

export {
  checkParameters,
  type NumberRule,
  type ParameterRule,
  type ParameterRules,
  Parameters,
  unknownName,
} from './parameters.ts';
export { type PolicyEntry, PolicyRegistry } from './policyRegistry.ts';
