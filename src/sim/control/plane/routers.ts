/** Which routing policy serves which pool, and from which random stream each takes its draws. */

import type { ControlConfig } from '../controlPlane.ts';
import type { PolicyWorld } from '../policy.ts';
import { type RoutingPolicy, routingPolicies } from '../routing/index.ts';

/**
 * One policy for everything, made by `made` where that is given, except where a pool has its own: that one is
 * another object with another stream, as upstream's pools with scorers of their own.
 */
export function routersOf(
  config: ControlConfig,
  worldOf: (rename?: Readonly<Record<string, string>>) => PolicyWorld,
  made?: (world: PolicyWorld) => RoutingPolicy,
): { readonly all: RoutingPolicy; readonly prefill: RoutingPolicy; readonly decode: RoutingPolicy } {
  const all = made?.(worldOf()) ?? routingPolicies.make(config.routing, worldOf());
  const { prefillRouting, decodeRouting } = config;
  return {
    all,
    prefill:
      prefillRouting === undefined
        ? all
        : routingPolicies.make(prefillRouting, worldOf(ownStreams('prefill'))),
    decode:
      decodeRouting === undefined ? all : routingPolicies.make(decodeRouting, worldOf(ownStreams('decode'))),
  };
}

function ownStreams(pool: 'prefill' | 'decode'): Readonly<Record<string, string>> {
  return { router: `${pool}-router`, 'router-filters': `${pool}-router-filters` };
}
