/**
 * Writes an ONNX file: the few messages of onnx.proto that a decoder needs, in protobuf's wire format.
 *
 * Weights lie in the file itself, or in a file of their own beside it (`external`), as large exports have them.
 */

export type Dim = number | string;

/** Numbers of `TensorProto.DataType`. */
export const onnxTypes = { float: 1, int32: 6, int64: 7, float16: 10 } as const;
export type OnnxType = keyof typeof onnxTypes;

type Attribute = number | { readonly float: number } | readonly number[];

export interface GraphValue {
  readonly name: string;
  readonly type: OnnxType;
  readonly dims: readonly Dim[];
}

class Message {
  readonly #parts: Uint8Array[] = [];

  /** A whole number of 64 bits; negative ones take ten bytes. */
  int(field: number, value: number | bigint): this {
    this.#parts.push(varint(BigInt(field) << 3n), varint(BigInt.asUintN(64, BigInt(value))));
    return this;
  }

  float(field: number, value: number): this {
    this.#parts.push(varint((BigInt(field) << 3n) | 5n), new Uint8Array(Float32Array.of(value).buffer));
    return this;
  }

  bytes(field: number, value: Uint8Array): this {
    this.#parts.push(varint((BigInt(field) << 3n) | 2n), varint(BigInt(value.length)), value);
    return this;
  }

  text(field: number, value: string): this {
    return this.bytes(field, new TextEncoder().encode(value));
  }

  message(field: number, value: Message): this {
    return this.bytes(field, value.finish());
  }

  finish(): Uint8Array {
    return Buffer.concat(this.#parts);
  }
}

function varint(value: bigint): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest === 0n ? low : low | 128);
  } while (rest !== 0n);
  return Uint8Array.from(bytes);
}

function valueInfo({ name, type, dims }: GraphValue): Message {
  const shape = new Message();
  for (const dim of dims) {
    shape.message(1, typeof dim === 'number' ? new Message().int(1, dim) : new Message().text(2, dim));
  }
  const tensor = new Message().int(1, onnxTypes[type]).message(2, shape);
  return new Message().text(1, name).message(2, new Message().message(1, tensor));
}

/** A graph as it is put together. Values are named by the caller or by the node that makes them. */
export class OnnxGraph {
  readonly #graph: Message = new Message();
  readonly #external: Uint8Array[] | undefined;
  readonly #dataFile: string;
  #externalBytes = 0;
  #nodes = 0;

  /** @param dataFile name of the file that weights go to; undefined where they stay in the graph */
  constructor(dataFile?: string) {
    this.#dataFile = dataFile ?? '';
    this.#external = dataFile === undefined ? undefined : [];
  }

  input(value: GraphValue): void {
    this.#graph.message(11, valueInfo(value));
  }

  output(value: GraphValue): void {
    this.#graph.message(12, valueInfo(value));
  }

  /** A constant. @returns its name */
  constant(name: string, dims: readonly number[], data: Float32Array | BigInt64Array | Int32Array): string {
    const type: OnnxType =
      data instanceof Float32Array ? 'float' : data instanceof Int32Array ? 'int32' : 'int64';
    const tensor = new Message();
    for (const dim of dims) tensor.int(1, dim);
    tensor.int(2, onnxTypes[type]).text(8, name);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    // small constants, such as the operands of shapes, must be in the graph itself
    if (this.#external === undefined || bytes.length < 1024) tensor.bytes(9, bytes);
    else {
      const entries = { location: this.#dataFile, offset: this.#externalBytes, length: bytes.length };
      for (const [key, value] of Object.entries(entries)) {
        tensor.message(13, new Message().text(1, key).text(2, `${value}`));
      }
      tensor.int(14, 1);
      this.#external.push(bytes);
      this.#externalBytes += bytes.length;
    }
    this.#graph.message(5, tensor);
    return name;
  }

  /** A node with one output or several. @returns the names of its outputs */
  node(
    type: string,
    inputs: readonly string[],
    outputs: readonly string[] = [`${type}_${this.#nodes}`],
    attributes: Readonly<Record<string, Attribute>> = {},
    domain = '',
  ): readonly string[] {
    const node = new Message();
    for (const input of inputs) node.text(1, input);
    for (const output of outputs) node.text(2, output);
    node.text(3, `${type}/${this.#nodes++}`).text(4, type);
    for (const [name, value] of Object.entries(attributes)) node.message(5, attributeOf(name, value));
    this.#graph.message(1, domain === '' ? node : node.text(7, domain));
    return outputs;
  }

  /** @returns the bytes of the file, and of the file of weights beside it where there is one */
  finish(): { readonly model: Uint8Array; readonly data: Uint8Array | undefined } {
    const model = new Message().int(1, 8).text(2, 'tierkv').message(7, this.#graph.text(2, 'decoder'));
    for (const [domain, version] of [
      ['', 17],
      ['com.microsoft', 1],
    ] as const) {
      model.message(8, new Message().text(1, domain).int(2, version));
    }
    return {
      model: model.finish(),
      data: this.#external === undefined ? undefined : Buffer.concat(this.#external),
    };
  }
}

function attributeOf(name: string, value: Attribute): Message {
  const attribute = new Message().text(1, name);
  if (typeof value === 'number') return attribute.int(3, value).int(20, 2);
  if ('float' in value) return attribute.float(2, value.float).int(20, 1);
  for (const item of value) attribute.int(8, item);
  return attribute.int(20, 7);
}
