/**
 * AES-256-GCM by the OpenSSL that Node carries, called through koffi. Node's own `Cipher` gives its output in new
 * memory, a part at a time, and on the thread that serves requests. Here a payload of megabytes goes from where it
 * lies to where it belongs, on a thread of Node's pool. Where koffi is not installed, or this Node does not show the
 * symbols of OpenSSL, `loadNativeCipher` gives nothing, and Node's `Cipher` does the same work.
 *
 * - `from` and `into` must stay where they are until the promise is settled; it is settled in any case.
 * - At most `BESIDE_MAX` payloads are under way, so that reads of files find a thread too.
 */

import { createDecipheriv } from 'node:crypto';

interface CipherJob {
  /** 32 bytes. */
  readonly key: Uint8Array;
  /** 12 bytes. */
  readonly nonce: Uint8Array;
  /** Bytes that are authenticated before the payload. */
  readonly header: Uint8Array;
  readonly from: Uint8Array;
  /** The output, as many bytes as `from`; undefined where the payload is authenticated as it is. */
  readonly into: Uint8Array | undefined;
  /** Where a payload that is authenticated as it is gets copied, as many bytes as `from`. Default: nowhere. */
  readonly copy?: Uint8Array;
}

export interface NativeCipher {
  /** @returns the authenticator, 16 bytes */
  seal(job: CipherJob): Promise<Buffer>;
  /** @returns whether `tag` is the authenticator; where it is not, what `into` holds is void */
  open(job: CipherJob, tag: Uint8Array): Promise<boolean>;
}

/** Payloads on threads of the pool at a time. It has four threads, unless it was told otherwise. */
const BESIDE_MAX = 2;
/** Bytes below which the way to another thread and back takes longer than the work. */
const BESIDE_BYTES = 32 * 1024;
const TAG_BYTES = 16;
const GET_TAG = 0x10;
const SET_TAG = 0x11;

let loading: Promise<NativeCipher | undefined> | undefined;

/** Bound once, and tried against Node's own cipher before it is given. */
export function loadNativeCipher(): Promise<NativeCipher | undefined> {
  loading ??= bind().catch(() => undefined);
  return loading;
}

type Update = ((...args: UpdateArgs) => number) & {
  async(...args: [...UpdateArgs, (error: unknown, result: number) => void]): void;
};
type UpdateArgs = [context: unknown, into: Uint8Array | null, count: Buffer, from: Uint8Array, bytes: number];
type CopyArgs = [into: Uint8Array, from: Uint8Array, bytes: number];
type BeginCall = (context: unknown, cipher: unknown, e: null, key: Uint8Array, nonce: Uint8Array) => number;
type EndCall = (context: unknown, into: Buffer, count: Buffer) => number;

async function bind(): Promise<NativeCipher | undefined> {
  const { default: koffi } = await import('koffi');
  const openssl = koffi.load(null);
  const cipher: unknown = openssl.func('const void *EVP_aes_256_gcm()')();
  const newContext = openssl.func('void *EVP_CIPHER_CTX_new()') as () => unknown;
  const freeContext = openssl.func('void EVP_CIPHER_CTX_free(void *c)') as (context: unknown) => void;
  const control = openssl.func('int EVP_CIPHER_CTX_ctrl(void *c, int type, int arg, void *p)') as (
    ...args: [context: unknown, type: number, bytes: number, tag: Uint8Array]
  ) => number;
  const calls = (way: 'Encrypt' | 'Decrypt'): { begin: BeginCall; update: Update; end: EndCall } => ({
    begin: openssl.func(
      `int EVP_${way}Init_ex(void *c, const void *t, void *e, const uint8_t *k, const uint8_t *n)`,
    ) as BeginCall,
    update: openssl.func(
      `int EVP_${way}Update(void *c, void *out, void *count, const void *from, int bytes)`,
    ) as Update,
    end: openssl.func(`int EVP_${way}Final_ex(void *c, void *out, void *count)`) as EndCall,
  });
  const [encrypt, decrypt] = [calls('Encrypt'), calls('Decrypt')];
  // the types of koffi do not have the signature of a function that it makes
  const copying = openssl.func('void *memcpy(void *into, const void *from, size_t bytes)') as unknown as {
    async(...args: [...CopyArgs, (error: unknown) => void]): void;
  };
  const turns = new Turns();

  const run = async (
    { begin, update, end }: typeof encrypt,
    { key, nonce, header, from, into, copy }: CipherJob,
    tag: Uint8Array | undefined,
  ): Promise<Buffer | undefined> => {
    const context = newContext();
    const count = Buffer.alloc(4);
    const rest = Buffer.alloc(TAG_BYTES);
    try {
      let fine = begin(context, cipher, null, key, nonce) === 1;
      fine &&= update(context, null, count, header, header.byteLength) === 1;
      const target = into ?? null;
      if (from.byteLength < BESIDE_BYTES) {
        fine &&= from.byteLength === 0 || update(context, target, count, from, from.byteLength) === 1;
        copy?.set(from);
      } else {
        const take = (): Promise<boolean> =>
          new Promise((resolve, reject) => {
            update.async(context, target, count, from, from.byteLength, (error, result) => {
              if (error) reject(error);
              else resolve(result === 1);
            });
          });
        const copied = (): Promise<void> =>
          new Promise((resolve, reject) => {
            if (copy === undefined) resolve();
            else copying.async(copy, from, from.byteLength, (error) => (error ? reject(error) : resolve()));
          });
        fine &&= await turns.take(async () => {
          const isTaken = await take();
          await copied();
          return isTaken;
        });
      }
      if (tag !== undefined) fine &&= control(context, SET_TAG, TAG_BYTES, tag) === 1;
      fine &&= end(context, rest, count) === 1;
      if (!fine || tag !== undefined) return fine ? rest : undefined;
      return control(context, GET_TAG, TAG_BYTES, rest) === 1 ? rest : undefined;
    } finally {
      freeContext(context);
    }
  };

  const native: NativeCipher = {
    async seal(job) {
      const tag = await run(encrypt, job, undefined);
      if (tag === undefined) throw new Error('OpenSSL does not encrypt by AES-256-GCM');
      return tag;
    },
    open: async (job, tag) => (await run(decrypt, job, tag)) !== undefined,
  };
  return (await isRight(native)) ? native : undefined;
}

/** Whether it does what Node's own cipher does, on a thread of the pool and without, and notices a wrong byte. */
async function isRight(native: NativeCipher): Promise<boolean> {
  for (const bytes of [80, BESIDE_BYTES + 16]) {
    const job = { key: Buffer.alloc(32, 3), nonce: Buffer.alloc(12, 4), header: Buffer.alloc(20, 5) };
    const plain = Buffer.alloc(bytes, 6);
    const sealed = Buffer.alloc(bytes);
    const opened = Buffer.alloc(bytes);
    const tag = await native.seal({ ...job, from: plain, into: sealed });
    const decipher = createDecipheriv('aes-256-gcm', job.key, job.nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(job.header).setAuthTag(tag);
    const expected = Buffer.concat([decipher.update(sealed), decipher.final()]);
    const isOpen = await native.open({ ...job, from: sealed, into: opened }, tag);
    if (!isOpen || !opened.equals(plain) || !expected.equals(plain)) return false;
    sealed[7] ^= 1;
    if (await native.open({ ...job, from: sealed, into: opened }, tag)) return false;
  }
  return true;
}

/** Lets `BESIDE_MAX` go at a time, in the order in which they came. */
class Turns {
  readonly #waiting: (() => void)[] = [];
  #underWay = 0;

  async take<Result>(act: () => Promise<Result>): Promise<Result> {
    if (this.#underWay >= BESIDE_MAX) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#underWay++;
    try {
      return await act();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#underWay--;
      else next();
    }
  }
}
