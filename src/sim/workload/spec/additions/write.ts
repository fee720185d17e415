/** Writes what a client has beyond upstream's keys, so that it reads back as the same. */

import type { LengthSpec } from '../../../random/index.ts';
import type { AdditionsSpec, WalkSpec } from './types.ts';

type Plain = { [key: string]: unknown };
type LengthOut = (spec: LengthSpec) => Plain;

function walkOut(walk: WalkSpec, lengthOut: LengthOut): Plain {
  const { growth, contextLimit, maxRounds, rounds, promptGrowthRate, decodeVariation } = walk;
  return {
    markov: {
      ...(rounds === undefined ? {} : { rounds: lengthOut(rounds) }),
      states: walk.states.map(({ name, inputLength, outputLength, pauseMs, next }) => ({
        name,
        input_distribution: lengthOut(inputLength),
        output_distribution: lengthOut(outputLength),
        ...(pauseMs === undefined ? {} : { pause_ms: lengthOut(pauseMs) }),
        next,
      })),
    },
    max_rounds: maxRounds,
    context_growth: growth,
    ...(growth === 'bounded' ? { context_limit: contextLimit } : {}),
    ...(promptGrowthRate === 0 ? {} : { prompt_growth_rate: promptGrowthRate }),
    ...(decodeVariation === 0 ? {} : { decode_variation: decodeVariation }),
  };
}

export function additionsOut(spec: AdditionsSpec, lengthOut: LengthOut): Plain {
  const { walk, behavior, prefixes, correlation } = spec;
  const { burst, oversized, synchronised } = behavior ?? {};
  return {
    session: walk === undefined ? undefined : walkOut(walk, lengthOut),
    behavior:
      behavior === undefined
        ? undefined
        : {
            ...(burst === undefined
              ? {}
              : {
                  burst: {
                    probability: burst.probability,
                    size: burst.size,
                    interval_us: burst.intervalUs,
                  },
                }),
            ...(oversized === undefined ? {} : { oversized }),
            ...(synchronised === undefined
              ? {}
              : { synchronised: { every_us: synchronised.everyUs, size: synchronised.size } }),
          },
    prefixes:
      prefixes === undefined
        ? undefined
        : {
            reuse_probability: prefixes.reuseProbability,
            groups: prefixes.groups.map(({ id, tokens, popularity }) => ({ id, length: tokens, popularity })),
          },
    correlation: correlation === undefined ? undefined : { burst_size: correlation.burstSize },
  };
}
