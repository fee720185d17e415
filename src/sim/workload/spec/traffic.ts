/**
 * Reading what clients and cohorts have in common: lengths, arrivals, prefixes, conversations, modalities,
 * deadlines.
 */

import type { LengthSpec } from '../../random/index.ts';
import { maxRequestTokens } from '../request.ts';
import { type AdditionsSpec, readAdditions } from './additions/index.ts';
import { readArrival, readLength } from './distribution.ts';
import type { SpecNode } from './reader.ts';
import {
  type ModalitySpec,
  type MultimodalSpec,
  type ReasoningSpec,
  SLO_CLASSES,
  type SloClass,
  type TrafficSpec,
} from './types.ts';

const V1_CLASSES: Readonly<Record<string, SloClass>> = { realtime: 'critical', interactive: 'standard' };

/** What reading a part of a spec needs to know of the whole. */
export interface Reading {
  readonly version1: boolean;
  readonly readFile: (path: string) => string;
}

function requiredLength(node: SpecNode, key: string, reading: Reading): TrafficSpec['inputLength'] {
  const length = readLength(node, key, reading.readFile);
  if (length === undefined) throw node.error(key, 'is missing', 'Give it a type and params');
  return length;
}

/** A session says the lengths of its first request; elsewhere the client does, or its archetype. */
function lengthOf(
  node: SpecNode,
  key: string,
  reading: Reading,
  known: LengthSpec | undefined,
  { walk }: AdditionsSpec,
): LengthSpec {
  if (known === undefined) return requiredLength(node, key, reading);
  const own = readLength(node, key, reading.readFile);
  return walk === undefined ? (own ?? known) : known;
}

function readSloClass(node: SpecNode, upgrade: boolean): SloClass {
  const given = node.text('slo_class');
  const renamed = upgrade && Object.hasOwn(V1_CLASSES, given) ? V1_CLASSES[given] : undefined;
  return renamed ?? node.choice('slo_class', SLO_CLASSES, '');
}

function readReasoning(node: SpecNode, reading: Reading): ReasoningSpec | undefined {
  const section = node.section('reasoning');
  if (section === undefined) return undefined;
  const ratioSection = section.section('reason_ratio_distribution');
  const blank = ratioSection === undefined || ratioSection.text('type') === '';
  const reasonRatio = blank ? undefined : readLength(section, 'reason_ratio_distribution', reading.readFile);
  const turns = section.section('multi_turn');
  const multiTurn =
    turns === undefined
      ? undefined
      : {
          maxRounds: turns.integer('max_rounds', { min: 1, max: 1_000_000 }, 0),
          thinkTimeUs: turns.integer('think_time_us', { min: 0 }, 0),
          accumulate: turns.choice('context_growth', ['', 'accumulate'], '') === 'accumulate',
          singleSession: turns.flag('single_session') ?? false,
        };
  if (multiTurn?.maxRounds === 0) throw turns!.error('max_rounds', 'is missing', 'Set it to at least 1');
  turns?.close();
  section.close();
  return {
    ...(reasonRatio === undefined ? {} : { reasonRatio }),
    ...(multiTurn === undefined ? {} : { multiTurn }),
  };
}

function readMultimodal(node: SpecNode, reading: Reading): MultimodalSpec | undefined {
  const section = node.section('multimodal');
  if (section === undefined) return undefined;
  const modality = (name: string): ModalitySpec | undefined => {
    const length = readLength(section, `${name}_distribution`, reading.readFile);
    const count = readLength(section, `${name}_count_distribution`, reading.readFile);
    return length === undefined || count === undefined ? undefined : { length, count };
  };
  const text = readLength(section, 'text_distribution', reading.readFile);
  const image = modality('image');
  const audio = modality('audio');
  const video = modality('video');
  section.close();
  return {
    ...(text === undefined ? {} : { text }),
    ...(image === undefined ? {} : { image }),
    ...(audio === undefined ? {} : { audio }),
    ...(video === undefined ? {} : { video }),
  };
}

export function readTraffic(
  node: SpecNode,
  reading: Reading,
  kind: 'client' | 'cohort',
  concurrency: number,
): TrafficSpec {
  const prefixGroup = node.text('prefix_group');
  const prefixLength = node.integer('prefix_length', { min: 0, max: maxRequestTokens }, 0);
  if (prefixGroup === '' && prefixLength > 0) {
    throw node.error(
      'prefix_length',
      'has no prefix_group',
      'Name the group whose members share these tokens',
    );
  }
  const network = node.section('network');
  const more = readAdditions(node, reading.readFile, concurrency);
  const reasoning = readReasoning(node, reading) ?? more.reasoning;
  const multimodal = readMultimodal(node, reading);
  const timeoutUs = node.optionalInteger('timeout', { min: 0 });
  const closedLoop = node.flag('closed_loop');
  const rateFraction = node.number('rate_fraction', { min: 0 }, concurrency > 0 ? 0 : Number.NaN);
  if (concurrency > 0 && rateFraction > 0) {
    throw node.error('rate_fraction', 'excludes concurrency', 'Keep one of them');
  }
  if (concurrency === 0 && rateFraction === 0) {
    throw node.error('rate_fraction', 'is 0', `Give this ${kind} a share above 0`);
  }
  if (Number.isNaN(rateFraction)) {
    throw node.error(
      'rate_fraction',
      'is missing',
      `Give this ${kind} a share of the aggregate rate above 0`,
    );
  }
  const traffic: TrafficSpec = {
    id: node.text('id'),
    tenantId: node.text('tenant_id'),
    sloClass: readSloClass(node, reading.version1 && kind === 'client'),
    model: node.text('model'),
    adapter: node.text('adapter'),
    rateFraction,
    arrival: readArrival(node, 'arrival', concurrency === 0),
    inputLength: lengthOf(node, 'input_distribution', reading, more.inputLength, more.additions),
    outputLength: lengthOf(node, 'output_distribution', reading, more.outputLength, more.additions),
    prefixGroup,
    prefixLength,
    streaming: node.flag('streaming') ?? false,
    sloTargetUs: node.integer('slo_target_us', { min: 0 }, 0),
    ...(network === undefined
      ? {}
      : {
          network: {
            rttMs: network.number('rtt_ms', { min: 0 }, 0),
            bandwidthMbps: network.number('bandwidth_mbps', { min: 0 }, 0),
          },
        }),
    ...(reasoning === undefined ? {} : { reasoning }),
    ...(multimodal === undefined ? {} : { multimodal }),
    ...(timeoutUs === undefined ? {} : { timeoutUs }),
    ...(closedLoop === undefined ? {} : { closedLoop }),
    ...more.additions,
  };
  network?.close();
  return traffic;
}
