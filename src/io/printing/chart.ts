/**
 * Renders a Vega-Lite specification to an SVG string, for the plots that commands write. `vega` and
 * `vega-lite` are optional peers: they are imported only when a plot is asked for, and a missing one is an
 * error that says what to install. The text is the same for the same specification: no browser, no canvas, no
 * network, no clock.
 */

import { TierKVError } from '../../runtime/errors.ts';

/**
 * A Vega-Lite specification as plain JSON. Data belong inside it (`data.values`), since nothing is fetched.
 */
export type VegaLiteSpec = { readonly [key: string]: unknown };

interface VegaModule {
  parse(spec: unknown): unknown;
  View: new (
    runtime: unknown,
    options: { renderer: 'none' },
  ) => { toSVG(): Promise<string>; finalize(): unknown };
}

interface VegaLiteModule {
  compile(spec: unknown): { spec: unknown };
}

async function importPeer<T>(name: string): Promise<T> {
  try {
    return (await import(name)) as T;
  } catch (cause) {
    throw new TierKVError(
      'TKV_CONFIG',
      `a plot needs the optional package ${name}, which is not installed. Run: npm install vega vega-lite`,
      { field: 'plot', cause },
    );
  }
}

/**
 * Before work whose result is to be drawn.
 * @throws {TierKVError} TKV_CONFIG when vega or vega-lite is not installed.
 */
export async function requirePlots(): Promise<void> {
  await importPeer<VegaLiteModule>('vega-lite');
  await importPeer<VegaModule>('vega');
}

/**
 * Compiles and draws `spec` as SVG text.
 * @throws {TierKVError} TKV_CONFIG when vega or vega-lite is not installed.
 */
export async function renderSvg(spec: VegaLiteSpec): Promise<string> {
  const vegaLite = await importPeer<VegaLiteModule>('vega-lite');
  const vega = await importPeer<VegaModule>('vega');
  const view = new vega.View(vega.parse(vegaLite.compile(spec).spec), { renderer: 'none' });
  try {
    return await view.toSVG();
  } finally {
    view.finalize();
  }
}
