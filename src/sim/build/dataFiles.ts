/**
 * The data files that ship with tierkv, by name: models, GPUs, coefficients and measurements. A name that
 * ends in `.json` is a path instead, so that a new model or GPU can be tried before it is added.
 */

import path from 'node:path';
import { exists, namesInFolder, readText as readFileText } from '../../io/files/inputs.ts';
import { dataFolder } from '../../packageFiles.ts';
import { configError, namedError, TierKVError } from '../../runtime/errors.ts';
import { readYaml } from '../description/fields.ts';
import { type Coefficients, parseCoefficients } from '../latency/coefficients.ts';
import {
  type KernelTables,
  parseDecodeTable,
  parseGemmTable,
  parsePrefillTable,
} from '../latency/fit/kernelFit.ts';
import type { HostPart, KernelCoefficients } from '../latency/kernels.ts';
import { parseCardTables } from '../latency/kernelTables.ts';
import { type LatencyBackend, latencyFacts } from '../latency/latencyNames.ts';
import {
  type Hardware,
  type ModelConfig,
  modelFileName,
  parseHardware,
  parseModelConfig,
  requireKnownName,
} from '../latency/modelConfig.ts';

const data: URL = dataFolder();

/** The text of a user's file, or of a data file by its URL; unpacked if its name ends in `.gz`. */
export function readText(file: string | URL): string {
  if (typeof file === 'string') return readFileText(file);
  return readFileText(file, `data/${file.pathname.slice(data.pathname.length)}`);
}

export function latencyDataFile(name: string): URL {
  return new URL(`latency/${name}`, data);
}

/** Parsed files of the package, by name. They do not change while a process runs. */
const shipped = new Map<string, unknown>();

/** Reads a file of the package once. @param name below `data/` */
function readShipped<T>(name: string, parse: (text: string, file: string) => T): T {
  if (!shipped.has(name)) shipped.set(name, parse(readText(new URL(name, data)), `data/${name}`));
  // it was made by this reader of this file
  return shipped.get(name) as T;
}

const namesIn = new Map<string, readonly string[]>();

/** Names of the models or GPUs that ship. */
export function dataFileNames(folder: 'models' | 'hardware'): readonly string[] {
  const known = namesIn.get(folder);
  if (known !== undefined) return known;
  const found = namesInFolder(new URL(`${folder}/`, data))
    .filter((name) => name.endsWith('.json'))
    .map((name) => name.slice(0, -'.json'.length));
  namesIn.set(folder, found);
  return found;
}

export function modelNames(): readonly string[] {
  return dataFileNames('models');
}

/** Names of the GPUs that are shipped. */
export function hardwareNames(): readonly string[] {
  return dataFileNames('hardware').map((name) => readShipped(`hardware/${name}.json`, parseHardware).name);
}

/**
 * Endings that a name may lack where only one model that ships starts with it: what the model was tuned for, its
 * release, how many of its parameters are active. Sizes, families and precisions may not be left out: `glm-4.5` is not `glm-4.5-air`.
 */
const lackable = /^(-(instruct|it|hf|chat|base|v0\.\d|\d{4}|a\d+b))+$/;

/**
 * A model by name, with or without its organisation, or by the path of its config.json. A name may be cut
 * short where only one model starts with it, by what changes no layer.
 * @param assumePlainAttention whether keys about layers that are not known change nothing
 * @throws TKV_CONFIG for another name, and for the path of something else
 */
export function loadModel(asked: string, assumePlainAttention: boolean = false): ModelConfig {
  if (asked.endsWith('.json')) {
    const name = asked
      .replace(/[/\\]config\.json$/, '')
      .replace(/\.json$/, '')
      .replace(/^.*[/\\]/, '');
    const side = path.join(path.dirname(asked), 'hf_quant_config.json');
    const isFolder = path.basename(asked) === 'config.json';
    const said = isFolder && exists(side) ? { text: readText(side), file: side } : undefined;
    return parseModelConfig(readText(asked), asked, name, assumePlainAttention, said);
  }
  if (isPath(asked)) {
    const remedy = `Give the path of its config.json, such as ${path.join(asked, 'config.json')}.`;
    throw configError('model', `is ${JSON.stringify(asked)}, neither a name nor a .json file`, remedy);
  }
  const wanted = modelFileName(asked);
  const known = dataFileNames('models');
  const longer = known.filter((name) => name.startsWith(`${wanted}-`));
  const remedy = "Put its config.json into data/models, or give that file's path.";
  const isCut =
    !known.includes(wanted) && longer.length === 1 && lackable.test(longer[0].slice(wanted.length));
  // a release of a known model may have another context, other layers, another precision: only its config.json says
  const shorter = known.filter((name) => wanted.startsWith(`${name}-`)).sort((a, b) => b.length - a.length);
  const release =
    shorter.length === 0
      ? ''
      : `${shorter[0]} is known, and whether this one has its layers and context is not: name ${shorter[0]} where it has. `;
  const name = isCut ? longer[0] : requireKnownName('model', wanted, known, `${release}${remedy}`);
  return readShipped(`models/${name}.json`, (text, file) => parseModelConfig(text, file, name));
}

/**
 * A model whose keys about layers that are not known change nothing, as its user says; undefined where it has no such keys.
 * @throws as `loadModel`
 */
export function loadVouchedModel(asked: string): ModelConfig | undefined {
  const model = loadModel(asked, true);
  try {
    loadModel(asked);
    return undefined;
  } catch {
    return model;
  }
}

/** Names have one slash at most, behind the organisation. */
function isPath(asked: string): boolean {
  return /^[./~]|\\|\/.*\//.test(asked);
}

/** A GPU by name or alias, or by the path of its file. */
export function loadHardware(asked: string): Hardware {
  if (asked.endsWith('.json')) return parseHardware(readText(asked), asked);
  const all = dataFileNames('hardware').map((name) => readShipped(`hardware/${name}.json`, parseHardware));
  const byAlias = all.find(({ aliases }) =>
    aliases.some((alias) => alias.toLowerCase() === asked.toLowerCase()),
  );
  if (byAlias !== undefined) return byAlias;
  const remedy = "Write its figures into data/hardware, or give that file's path.";
  const name = requireKnownName(
    'GPU',
    asked,
    all.map((hardware) => hardware.name),
    remedy,
  );
  return all.find((hardware) => hardware.name === name)!;
}

function shippedCoefficients(backend: LatencyBackend, hardware: Hardware): string {
  const { perGpu } = latencyFacts[backend];
  return perGpu === true ? `${backend}-${hardware.name.toLowerCase()}.json` : `${backend}.json`;
}

function kernelFile(hardware: Hardware): string {
  return `kernels/${hardware.name.toLowerCase()}.json.gz`;
}

/** Whether times of this GPU's kernels are shipped. */
function hasKernelTables(hardware: Hardware): boolean {
  return exists(new URL(kernelFile(hardware), data));
}

/** The measured kernels of a GPU, with what vLLM adds on the host. @throws TKV_CONFIG for a GPU without tables */
function loadKernels(hardware: Hardware): KernelCoefficients {
  if (!hasKernelTables(hardware)) {
    throw namedError('TKV_CONFIG', { field: 'latencyModel' }, (name) => {
      const others = namesInFolder(new URL('kernels/', data)).flatMap(
        (file) => /^(.*)\.json\.gz$/.exec(file)?.[1] ?? [],
      );
      return (
        `there are no tables of kernels for ${hardware.name}; there are of ${others.join(', ').toUpperCase()}. ` +
        `Choose another ${name('latencyModel')}, such as calibrated.`
      );
    });
  }
  return { tables: readShipped(kernelFile(hardware), parseCardTables), host: loadHostPart('vllm') };
}

/** The time that an engine adds on the host. */
function loadHostPart(engine: string): HostPart {
  return readShipped(`latency/host.json`, (text, file) => {
    const part = readYaml(text, file).section('engines')?.section(engine);
    if (part === undefined)
      throw configError('engine', `is ${engine}, and ${file} has no such engine`, 'Use vllm.');
    const time = (key: string): number => part.number(key, { min: 0, max: 1e6 }, 0);
    return {
      engine,
      requestUs: time('requestUs'),
      promptTokenUs: time('promptTokenUs'),
      stepUs: time('stepUs'),
      stepRequestUs: time('stepRequestUs'),
      layerUs: time('layerUs'),
      eagerLayerUs: time('eagerLayerUs'),
    };
  });
}

/** Coefficients of a backend as shipped, for the GPU where they are of one, or from a file. */
export function loadCoefficients(
  backend: LatencyBackend,
  hardware: Hardware,
  file: string | undefined,
): Coefficients {
  const checked = (coefficients: Coefficients, name: string): Coefficients => {
    if (coefficients.backend === backend) return coefficients;
    const problem = `${name} holds coefficients of ${coefficients.backend}, not of ${backend}`;
    throw new TierKVError('TKV_MISMATCH', `${problem}. Name the backend of the file, or another file.`, {
      path: name,
    });
  };
  if (backend === 'kernels' && file === undefined) {
    return { backend, gpu: hardware.name, values: loadKernels(hardware) };
  }
  if (file !== undefined) return checked(parseCoefficients(readText(file), file), file);
  const shippedName = shippedCoefficients(backend, hardware);
  if (!exists(latencyDataFile(shippedName))) {
    const what = latencyFacts[backend].perGpu === true ? `${backend} on ${hardware.name}` : backend;
    throw namedError('TKV_CONFIG', { field: 'coefficients' }, (name) => {
      const remedy = `Give a file of tierkv latency fit as ${name('coefficients')}, or choose another ${name('latencyModel')}.`;
      return `there are no coefficients for ${what}. ${remedy}`;
    });
  }
  return checked(readShipped(`latency/${shippedName}`, parseCoefficients), `data/latency/${shippedName}`);
}

export interface ChosenCoefficients {
  readonly coefficients: Coefficients;
  /** Whether they were measured on another GPU, H100. */
  readonly standsIn: boolean;
}

/**
 * Coefficients of a backend, from a file or as shipped. Where nothing measured on a GPU ships, those of H100 stand in, on this
 * GPU's peaks, memory and links.
 * @throws TKV_CONFIG, TKV_IO and TKV_MISMATCH about the file
 */
export function chooseCoefficients(
  backend: LatencyBackend,
  hardware: Hardware,
  file: string | undefined,
): ChosenCoefficients {
  const isMeasured = exists(latencyDataFile(shippedCoefficients(backend, hardware)));
  const standsIn = latencyFacts[backend].perGpu === true && file === undefined && !isMeasured;
  const measuredOn = standsIn ? loadHardware('H100') : hardware;
  return { coefficients: loadCoefficients(backend, measuredOn, file), standsIn };
}

/** GPU and tensor parallelism that a model runs on unless told otherwise. */
export function modelDefaults(model: string): { gpu: string; tp: number } | undefined {
  const models = readShipped('latency/model-defaults.json', readYaml).section('models');
  const found = models?.section(model);
  return found === undefined ? undefined : { gpu: found.text('gpu'), tp: found.integer('tp', { min: 1 }, 1) };
}

/** The kernel measurements that ship for H100. */
export function loadKernelTables(): KernelTables {
  const read = <T>(name: string, parse: (text: string, file: string) => T): T =>
    parse(readText(latencyDataFile(name)), `data/latency/${name}`);
  return {
    gemm: read('h100-gemm.csv', parseGemmTable),
    prefill: read('h100-attention-prefill.csv', parsePrefillTable),
    decode: read('h100-attention-decode.csv', parseDecodeTable),
  };
}
