/** Names of browsers that the library uses where it runs in a page or a worker; this project has no DOM library. */

declare module 'tierkv:files' {
  /** Texts of the data files of the package, by their names below `data/`. A build for browsers makes this module. */
  const texts: Readonly<Record<string, string>>;
  export default texts;
}
