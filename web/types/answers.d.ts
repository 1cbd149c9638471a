/** Types of the server's answers by path and method. `tests.kit.page_types` makes `evertalk-api` from the OpenAPI description. */
import type { components, paths } from "evertalk-api";

export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

type WithoutQuery<Path extends string> = Path extends `${infer Before}?${string}` ? Before : Path;
type Parts<Path extends string> = Path extends `${infer First}/${infer Rest}` ? [First, ...Parts<Rest>] : [Path];

/** True if each part of an address is the part of a described path, or stands where that has a parameter. */
type Fits<Address extends string[], Described extends string[]> =
  Address extends [infer Part extends string, ...infer Rest extends string[]]
    ? Described extends [infer Name extends string, ...infer Names extends string[]]
      ? Name extends `{${string}}` ? Fits<Rest, Names> : Part extends Name ? Fits<Rest, Names> : false
      : false
    : Described extends [] ? true : false;

type Lookup<Address extends string> = {
  [Path in keyof paths]: Fits<Parts<`/api/v1${Address}`>, Parts<Path>> extends true ? Path : never
}[keyof paths];
type Described<Address extends string> = `/api/v1${Address}` extends keyof paths ? `/api/v1${Address}` : Lookup<Address>;

type Good = 200 | 201 | 202;
type Json<Operation> = Operation extends { responses: infer Responses }
  ? { [Status in keyof Responses & Good]: Responses[Status] extends { content: { "application/json": infer Body } } ? Body : never }[keyof Responses & Good]
  : never;

/** Answer of the operation at an address below `/api/v1`; `never` for an address that the server does not have. */
export type Answer<Address extends string, Method extends string> =
  Json<paths[Described<WithoutQuery<Address>>][Lowercase<Method> & keyof paths[Described<WithoutQuery<Address>>]]>;
