"""The routes of `/admin/v1` on users and service accounts, their roles and identities."""

from __future__ import annotations

from scopekv.gateway.admin_call import Call, Linked, Named, Route


def _accounts(folder: str, service: bool) -> tuple[Route, ...]:
    """The routes of users or of service accounts."""

    def block(call: Call, blocked: bool) -> object:
        call.nothing()
        return call.service.accounts.set_blocked(
            call.caller, call["org"], call["name"], service=service, blocked=blocked
        )

    def delete(call: Call) -> object:
        call.nothing()
        return call.service.accounts.delete(call.caller, call["org"], call["name"], service=service)

    def create(call: Call) -> object:
        name = call.body(Named).name
        return call.service.accounts.create(call.caller, call["org"], name, service=service)

    def show(call: Call) -> object:
        call.only_query()
        return call.service.accounts.show(call.caller, call["org"], call["name"], service=service)

    def listing(call: Call) -> object:
        return call.service.accounts.list(call.caller, call["org"], service=service, **call.page())

    one = f"/orgs/{{org}}/{folder}/{{name}}"
    return (
        Route("GET", f"/orgs/{{org}}/{folder}", listing),
        Route("POST", f"/orgs/{{org}}/{folder}", create, 201),
        Route("GET", one, show),
        Route("DELETE", one, delete),
        Route("POST", f"{one}/block", lambda call: block(call, True)),
        Route("POST", f"{one}/unblock", lambda call: block(call, False)),
    )


def _role(call: Call, held: bool) -> object:
    call.nothing()
    return call.service.accounts.set_role(
        call.caller, call["org"], call["name"], call["role"], held=held
    )


def _link(call: Call) -> object:
    body = call.body(Linked)
    return call.service.accounts.link(
        call.caller, call["org"], call["name"], issuer=body.issuer, subject=body.subject
    )


ACCOUNT_ROUTES: tuple[Route, ...] = (
    *_accounts("users", service=False),
    *_accounts("service-accounts", service=True),
    Route("PUT", "/orgs/{org}/users/{name}/identity", _link),
    Route("PUT", "/orgs/{org}/accounts/{name}/roles/{role}", lambda call: _role(call, True)),
    Route("DELETE", "/orgs/{org}/accounts/{name}/roles/{role}", lambda call: _role(call, False)),
)
