/**
 * Compiles the AssemblyScript policies of `assembly` to `wasm`, where tierkv reads them. AssemblyScript is a
 * development dependency of this repository; a policy of your own is compiled the same way:
 *
 *   node examples/policies/compileWasm.ts
 */

import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The part of the compiler's programming interface that is used here. */
interface Compiler {
  main(
    options: readonly string[],
    files: {
      readFile(name: string, folder: string): string | null;
      writeFile(name: string, contents: Uint8Array, folder: string): void;
      listFiles(): string[];
    },
  ): Promise<{ readonly error: Error | null; readonly stderr: { toString(): string } }>;
}

const sources = path.join(import.meta.dirname, 'assembly');
const compiled = path.join(import.meta.dirname, 'wasm');

/** Policies of the folder. `memory.ts` is shared code and has no policy. */
export const policies: readonly string[] = fs
  .readdirSync(sources)
  .map((file) => path.basename(file, '.ts'))
  .filter((name) => name !== 'memory')
  .sort();

/** No import of `abort`, memory that is never freed, no checks that a policy's budget makes needless. */
const options = [
  '--runtime',
  'stub',
  '--noAssert',
  '--use',
  'abort=',
  '--optimizeLevel',
  '3',
  '--shrinkLevel',
  '0',
];

export function wasmFile(policy: string): string {
  return path.join(compiled, `${policy}.wasm`);
}

/** Bytes that the compiler makes of a policy's source. */
export async function compilePolicy(policy: string): Promise<Uint8Array> {
  const compiler: string = 'assemblyscript/asc';
  const { main } = (await import(compiler)) as Compiler;
  let bytes: Uint8Array | undefined;
  const { error, stderr } = await main([`${policy}.ts`, '--outFile', 'policy.wasm', ...options], {
    readFile: (name) => {
      const file = path.join(sources, name);
      return fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : null;
    },
    writeFile: (_, contents) => {
      bytes = contents;
    },
    listFiles: () => [],
  });
  if (error !== null || bytes === undefined) throw new Error(`${policy}.ts: ${stderr.toString()}`);
  return bytes;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  fs.mkdirSync(compiled, { recursive: true });
  for (const policy of policies) {
    const bytes = await compilePolicy(policy);
    fs.writeFileSync(wasmFile(policy), bytes);
    console.log(`${wasmFile(policy)}: ${bytes.length} bytes`);
  }
}
